// Package sink reads the documents that lapse keeps in Redis. An application that can
// reach Redis makes a [Reader]. One that cannot asks the NATS service of package
// sink/service, which answers from a Reader.
//
//	reader.go       Reader, its options and errors, Document; Get, GetMany, Config
//	list.go         List: a collection in pages. ordered.go: those that will expire, in that order
//	query.go        Query: the documents for which conditions hold, and what a continuation has.
//	                querypage.go and queryids.go have the ways to make a page, indexes.go which index serves it, and
//	                entries.go reads one. Package sink/entries has the rules of conditions and values
//	count.go        Count: live documents, and expired ones that are not yet reaped
//	forecast.go     Forecast: how many documents will expire, and when
//	collections.go  Collections: which there are (names.go finds their names)
//	shards.go       the shards; which of them may be read, and by what a document is judged
//
// Each script has its Go file beside it. A Reader writes nothing: package sink/store does,
// for the processor. Package sink/client reads and writes over NATS. How documents are stored is described in
// sink/internal/layout.
package sink
