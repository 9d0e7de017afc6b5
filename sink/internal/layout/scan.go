package layout

import (
	_ "embed" // the script
	"iter"

	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed scan.lua
var scanSource string

// ScanScript scans a part of a collection. It takes the keys of the state, the configurations
// and the documents, and the arguments of a [ScanRequest].
var ScanScript = NewHeadScript(scanSource)

// MaxChunk is the number of documents that a chunk of a scan takes at most, about. Redis
// decides how many HSCAN returns.
const MaxChunk = 32

// ScanRequest says where a scan begins and when it stops. It stops at the first limit that
// it reaches, after the chunk in which it does.
type ScanRequest struct {
	Collection string
	Cursor     string // "0" for the beginning
	First      int    // how many documents the first chunk takes
	Documents  int    // limit of documents to return
	Examined   int    // limit of documents to examine
	Bytes      int    // limit of bytes of values to examine
	Header     int    // longest header to return
	Whole      int    // limit of bytes of whole documents; 0: return headers and lengths alone
	Cuts       ttlrules.Cuts
	Prefix     string // of the ids
}

// Args are the arguments of scan.lua.
func (s ScanRequest) Args() []any {
	return []any{s.Collection, s.Cursor, s.First, s.Documents, s.Examined, s.Bytes, s.Header, s.Whole, s.Cuts.Inherit, s.Cuts.Own, s.Prefix}
}

// Positions in the reply of scan.lua.
const (
	scanHead = iota
	scanServer
	scanNext
	scanExamined
	scanLoaded
	scanChunks // the first chunk; the rest follow
)

// Positions in a chunk.
const (
	chunkCursor = iota
	chunkNext
	chunkTaken
	chunkWhole
	chunkDocuments
)

// Scan is the reply of scan.lua.
type Scan struct {
	Head     Head
	Server   string // names the process that knows the cursors; "" if unknown
	Next     string // cursor of the rest; "0" at the end
	Examined int    // documents
	Loaded   int    // bytes of their values
	Chunks   []Chunk
}

// Chunk is what one HSCAN found.
type Chunk struct {
	Cursor, Next string
	Taken        int  // how many documents HSCAN was asked for
	Whole        bool // the documents came with their bodies

	documents Reply
}

// Scan reads the reply of scan.lua.
func (r Reply) Scan() Scan {
	s := Scan{Head: r.Head(scanHead), Server: r.Str(scanServer), Next: r.Str(scanNext), Examined: int(r.Int(scanExamined)), Loaded: int(r.Int(scanLoaded))}
	for i := scanChunks; i < len(r); i++ {
		c := r.List(i)
		s.Chunks = append(s.Chunks, Chunk{Cursor: c.Str(chunkCursor), Next: c.Str(chunkNext), Taken: int(c.Int(chunkTaken)),
			Whole: c.Int(chunkWhole) == 1, documents: c.List(chunkDocuments)})
	}
	return s
}

// Scanned is a document that a scan found.
type Scanned struct {
	ID     string
	Value  string // the whole value in a chunk of whole documents, else the header
	Length int    // of the body, unless the value is whole
}

// Documents are the documents of the chunk.
func (c Chunk) Documents() iter.Seq[Scanned] {
	width := 3 // id, header, length
	if c.Whole {
		width = 2 // id, value
	}
	return func(yield func(Scanned) bool) {
		for v := c.documents; len(v) >= width; v = v[width:] {
			d := Scanned{ID: v.Str(0), Value: v.Str(1)}
			if !c.Whole {
				d.Length = int(v.Int(2))
			}
			if !yield(d) {
				return
			}
		}
	}
}
