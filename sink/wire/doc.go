// Package wire is what lapse and its clients say to each other: the subjects,
// the names in them, the headers and the JSON bodies. It holds no behaviour but
// their encoding. Processor, reader and command line all take them from here.
//
// All subjects start with a prefix, "lapse" unless set otherwise ([Prefix]).
// Instants are Unix milliseconds inside and RFC 3339 in UTC with milliseconds
// on the wire ([Time]); TTLs are whole seconds; an etag is the log sequence of
// the version's write in decimal.
package wire
