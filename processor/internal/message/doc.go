// Package message decodes the messages of the log.
//
// A [Message] is decoded as far as that depends on itself alone: it is valid, or it has the
// [Refusal] that will be its rejection. Whether it takes effect depends on the document and
// on the configuration, and is decided in package decide. A [Position] is a place in the
// log. There is no I/O here.
package message
