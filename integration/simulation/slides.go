package simulation

import (
	"context"

	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/transit"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// was is a Reader whose Get has read a document before.
type was struct {
	service.Reader
	sink.Document
}

func (r was) Get(context.Context, string, string) (sink.Document, error) { return r.Document, nil }

// get lets a process serve a get. If the document slides, the process appends the touch, perhaps
// late, over its connection.
func (w *World) get(s plan.Step) {
	p, collection, id := w.hosts[w.host(s)], s.Args[1], s.Args[2]
	found, err := w.redis.Get(collection, id)
	if err != nil || !found.Slides {
		return
	}
	etag := wire.Etag(found.Header.Etag)
	w.observer.Slides(collection, id, etag)
	w.queue.Add(transit.Later(over(s, 3), p.stands), func() {
		if nc := p.connection(); nc != nil && !p.isDead() {
			sliding := service.Sliding{Reader: was{Document: sink.Document{ID: id, Etag: etag,
				ExpiresAt: found.ExpiresAt, Slides: true}}, NATS: nc, Prefix: prefix}
			_, _ = sliding.Get(context.Background(), collection, id)
		}
	})
}
