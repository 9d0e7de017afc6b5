// Package client speaks to lapse as any NATS client may: it publishes writes and
// configuration and waits for their outcome ([Client.Write]), asks the read
// service ([Client.Get] and the others), and follows the stream of expiry events
// and rejections ([Client.Watch]). It knows only the wire contract of package
// wire, and is the example to follow in another language.
package client
