package store

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/ttlrules"
)

// scanBytes limits the bytes of documents that a scan loads before it answers.
const scanBytes = 1 << 20

// Scan reads the headers of a part of a collection's documents, to build its index. It
// returns about count documents, or fewer if they are large, and the cursor of the rest, "0"
// at the end. server names the Redis process that knows the cursor.
func (p *Shard) Scan(ctx context.Context, version, collection, cursor string, count int) (found []Change, next, server string, err error) {
	request := layout.ScanRequest{Collection: collection, Cursor: cursor, First: 1, Documents: count, Examined: count, Bytes: scanBytes,
		Header: layout.MaxHeader, Cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: ttlrules.NoCut}}
	r, err := p.scripts.Run(ctx, layout.ScanScript, []string{p.keys.State(), p.keys.Config(), p.keys.Docs(collection)}, request.Args()...)
	if err != nil {
		return nil, "", "", fmt.Errorf("scan shard %d: %w", p.id, err)
	}
	scan := r.Scan()
	if scan.Head.Version != version {
		return nil, "", "", fmt.Errorf("scan shard %d: %w", p.id, ErrFenced)
	}
	for _, chunk := range scan.Chunks {
		for d := range chunk.Documents() {
			h, _, err := layout.ParseDocument(d.Value)
			if err != nil {
				return nil, "", "", fmt.Errorf("scan shard %d, collection %s: %w: %w", p.id, collection, ErrDamaged, err)
			}
			found = append(found, Change{ID: d.ID, Old: &h})
		}
	}
	return found, scan.Next, scan.Server, nil
}
