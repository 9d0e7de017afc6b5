// Package wire is what lapse and its clients say to each other: the subjects,
// the names in them, the headers and the JSON bodies. It holds no behaviour but
// their encoding. Processor, reader and command line all take them from here.
//
// All subjects start with a prefix, "lapse" unless set otherwise ([Prefix]):
//
//	subject                               made by          what goes there
//	lapse.write.<op>.<collection>.<id>    Prefix.Write     a write, by any client
//	lapse.config.<collection>             Prefix.Config    a Config, by any client
//	lapse.drop.<collection>               Prefix.Drop      nothing: drops the collection
//	lapse.tick                            Prefix.Tick      nothing: moves time on
//	lapse.expired.<collection>.<id>       Prefix.Expired   an Event, by lapse
//	lapse.rejected.<collection>.<id>      Prefix.Rejected  what was rejected, by lapse
//	lapse.fence.<partition>               Prefix.Fence     nothing: says whose publications count
//	lapse.read.<verb>.<collection>        Prefix.Read      a read, by any client
//	lapse.read.get.<collection>.<id>      Prefix.ReadGet   a read of one document
//
// The first four are stored in the log ([Prefix.LogStream]), the three after them
// in the stream of events ([Prefix.EventsStream]); reads are requests and stored
// nowhere. An id is one token of a subject, escaped ([EscapeID]).
//
// Instants are Unix milliseconds inside and RFC 3339 in UTC with milliseconds
// on the wire ([Time]); TTLs are whole seconds; an etag is the log sequence of
// the version's write in decimal ([Etag]).
package wire
