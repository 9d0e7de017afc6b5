package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed read.lua
var readSource string

var readScript = redis.NewScript(readSource)

// Positions in the reply of read.lua.
const (
	readVersion = iota
	readLost    // the collection that lost documents, from 1; 0 if none did
	readValues  // the first value; the rest follow
)

// ReadBytes is how many bytes of documents one call of [Shard.ReadDocuments] brings with their bodies. The document
// with which it has as many is the last.
const ReadBytes = 4 << 20

// Want names documents of one collection that a step needs: Headers where the header is
// enough, Whole where the body is needed too.
type Want struct {
	Collection string
	Headers    []string
	Whole      []string
}

// ReadDocuments reads documents of a shard that is at version (else ErrFenced). It returns
// ErrDamaged if a collection does not have as many documents as the last commit left. The
// result has one list per want, its Headers first, with nil for a document that does not exist. Behind
// ReadBytes it has only the headers of the rest.
func (p *Shard) ReadDocuments(ctx context.Context, version string, wants []Want) ([][]*Stored, error) {
	keys := make([]string, 1, 1+len(wants))
	keys[0] = p.keys.State()
	args := []any{ReadBytes}
	for _, w := range wants {
		keys = append(keys, p.keys.Docs(w.Collection))
		args = append(args, w.Collection, len(w.Headers), len(w.Whole))
		for _, id := range w.Headers {
			args = append(args, id)
		}
		for _, id := range w.Whole {
			args = append(args, id)
		}
	}
	r, err := p.scripts.Run(ctx, readScript, keys, args...)
	if err != nil {
		return nil, fmt.Errorf("read shard %d: %w", p.id, err)
	}
	if r.Str(readVersion) != version {
		return nil, fmt.Errorf("read shard %d: %w", p.id, ErrFenced)
	}
	if n := r.Int(readLost); n > 0 {
		return nil, fmt.Errorf("read shard %d: %w: %s", p.id, ErrDamaged, lost(wants[n-1].Collection))
	}
	out := make([][]*Stored, len(wants))
	at := readValues
	for i, w := range wants {
		out[i] = make([]*Stored, len(w.Headers)+len(w.Whole))
		for j := range out[i] {
			if out[i][j], err = storedAt(r, at); err != nil {
				return nil, fmt.Errorf("read shard %d, collection %s: %w: %w", p.id, w.Collection, ErrDamaged, err)
			}
			at++
		}
	}
	return out, nil
}
