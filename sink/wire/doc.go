// Package wire defines the messages between lapse and its clients: the subjects, the names in
// them, the headers and the JSON bodies. It encodes and checks them and does nothing else. The
// processor, the reader and the command line all use it.
//
// All subjects start with a prefix, "lapse" unless set otherwise ([Prefix]):
//
//	subject                             function                published there
//	lapse.write.<op>.<collection>.<id>  Prefix.Write            a write, by any client
//	lapse.config.<collection>           Prefix.Config           a Config, by any client
//	lapse.drop.<collection>             Prefix.Drop             a drop of the collection, by any client
//	lapse.tick                          Prefix.Tick             an empty message that moves log time on
//	lapse.expired.<collection>.<id>     Prefix.Expired          an Event, by lapse
//	lapse.expiring.<collection>.<id>    Prefix.Expiring         an Expiring, by lapse
//	lapse.due.<target>                  Prefix.Due              a document with a target, in place of its Event, by lapse
//	lapse.changed.<collection>.<id>     Prefix.Changed          a Change, by lapse
//	lapse.changed.<collection>          Prefix.Dropped          a Change: the collection was dropped, by lapse
//	lapse.rejected.<collection>.<id>    Prefix.Rejected         a rejection, by lapse
//	lapse.fence.<shard>                 Prefix.Fence            a fence, by the owner of the shard
//	lapse.beat.<shard>                  Prefix.Beat             a Beat, by the owner of the shard
//	lapse.read.<verb>.<collection>      Prefix.Read             a read, by any client
//	lapse.read.get.<collection>.<id>    Prefix.ReadGet          a read of one document
//	lapse.read.collections              Prefix.ReadCollections  a list of all collections
//	lapse.region.<domain>               Prefix.Region           a RegionRequest, by lapse in another region
//	lapse.readers.<account>             Prefix.Readers          the stream of events, for the mirror of an account
//
// The log ([Prefix.LogStream]) stores the first four, the stream of events
// ([Prefix.EventsStream]) the next seven. Beats, reads and requests are not stored. A key-value bucket
// ([Prefix.MembersBucket]) lists the processes, the owners of the shards and the regions that follow: a [Member] under
// "member.<id>", a [Lease] under "lease.<shard>", an entry under "follower.<domain>". An id is one token of a subject,
// escaped ([EscapeID]). [Log.ParseSubject] reads the subjects of the log.
//
// A message to the log may have the headers Lapse-If-Match (for a write, the etag of the
// document; for a configuration or a drop, the etag of the collection's configuration),
// Lapse-Reply-To (the inbox for its [Outcome]) and traceparent. An [Event] and an [Expiring] have the headers of
// CloudEvents 1.0; its ce-source is /<prefix>/<log>/collections/<collection>, where <log> is
// the instant at which the log was created, in Unix milliseconds. A rejection has
// Lapse-Code, Lapse-Error, Lapse-Subject, Lapse-Stream and Lapse-Seq. Some events and rejections have
// Lapse-Offset, which is for lapse itself.
//
// Instants are Unix milliseconds inside and RFC 3339 in UTC with milliseconds
// on the wire ([Time]); TTLs are whole seconds; an etag is the log sequence of
// the version's write, or of the configuration's message, in decimal ([Etag]).
package wire
