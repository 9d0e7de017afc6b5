package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed copy.lua
var copySource string

var copyScript = redis.NewScript(copySource)

// Positions in the reply of copy.lua.
const (
	copyStatus = iota
	copyServer
	copyDone
	copyCursor
	copyTake
	copyPages // pairs of the collection, from 1, and its documents

	copyWhich = 1 // the collection that lost documents, from 1
)

// Statuses in the reply of copy.lua, besides 1.
const (
	copyFenced = 0
	copyLost   = -2
)

// Document is a document, or its header.
type Document struct {
	Collection string
	ID         string
	Value      string // the header, and the body
}

// CopyPlace is where a copy goes on in a collection. Its zero value is the beginning.
type CopyPlace struct {
	Cursor string
	Server string // names the Redis process that knows the cursor
	Take   int    // how many documents are read at once
}

// Copied is what a copy has read.
type Copied struct {
	Documents []Document // one may come twice
	Done      int        // how many of the collections were read to their end
	Next      CopyPlace  // in the next collection
}

// Copy reads documents of collections, one collection after the other, in a shard that is at
// a version (else store.ErrFenced). It begins at a place in the first one, and stops after about
// so many documents, or so many bytes, but returns at least one document if there is any.
//
// A document that is stored from the first copy of its collection to the last is read, in one of
// the versions that it had meanwhile. This is what HSCAN promises, in one process of Redis:
// if at was in another one, Copy reads nothing, and returns the beginning as the next place. It
// returns store.ErrDamaged if a collection has lost documents.
func (p *Shard) Copy(ctx context.Context, version string, collections []string, at CopyPlace, documents,
	bytes int) (Copied, error) {
	if at.Cursor == "" {
		at = CopyPlace{Cursor: "0", Take: 1}
	}
	keys := make([]string, 1, 1+len(collections))
	keys[0] = p.keys.State()
	args := make([]any, 0, 5+len(collections))
	args = append(args, version, at.Cursor, at.Take, documents, bytes)
	for _, c := range collections {
		keys = append(keys, p.keys.Docs(c))
		args = append(args, layout.SizePrefix+c)
	}
	v, err := copyScript.Run(ctx, p.client, keys, args...).Slice()
	if err != nil {
		return Copied{}, fmt.Errorf("copy shard %d: %w", p.id, layout.Foreign(err))
	}
	r := layout.Reply(v)
	switch r.Int(copyStatus) {
	case copyFenced:
		return Copied{}, fmt.Errorf("copy shard %d: %w", p.id, ErrFenced)
	case copyLost:
		return Copied{}, fmt.Errorf("copy shard %d: %w: collection %s does not have the documents that the last commit left",
			p.id, ErrDamaged, collections[r.Int(copyWhich)-1])
	}
	server := r.Str(copyServer)
	if at.Cursor != "0" && at.Server != server {
		return Copied{}, nil
	}
	c := Copied{Done: int(r.Int(copyDone)), Next: CopyPlace{Cursor: r.Str(copyCursor), Server: server,
		Take: int(r.Int(copyTake))}}
	for i := copyPages; i+1 < len(r); i += 2 {
		collection, page := collections[r.Int(i)-1], r.List(i+1)
		for ; len(page) > 1; page = page[2:] {
			c.Documents = append(c.Documents, Document{Collection: collection, ID: page.Str(0), Value: page.Str(1)})
		}
	}
	return c, nil
}

// ParseDocument splits the value of a document into its header and its body.
func ParseDocument(value string) (h Header, body string, err error) {
	return layout.ParseDocument(value)
}

// DecodeConfig reads what the method Encode of a configuration wrote.
func DecodeConfig(raw string) (Config, error) { return layout.DecodeConfig(raw) }
