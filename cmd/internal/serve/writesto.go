package serve

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	firstEvery  = 250 * time.Millisecond
	firstWithin = time.Second
)

// first knows where writes over HTTP go while this region follows another one. It asks the streams: there a promotion
// shows at once, in a standby too. An owner takes writes a moment later, when it has taken its shards over as the first
// region: a session that follows sends no outcomes.
type first struct {
	url    string                 // of the API there (--writes-to)
	own    func() *wire.Following // of the shards that this process owns
	nats   *nats.Conn
	root   string                 // name of the stream that has the role of the region
	domain atomic.Pointer[string] // of the region that is followed, as last read; "" or nil if there is none
}

func newFirst(url string, own func() *wire.Following, nc *nats.Conn, prefix wire.Prefix, shards int) *first {
	return &first{url: url, own: own, nats: nc, root: prefix.RootStream(shards)}
}

// now is the URL of the API that takes writes, and the JetStream domain of its region; both are empty if this region
// takes them.
func (f *first) now() (url, domain string) {
	if d := f.domain.Load(); d != nil && *d != "" {
		return f.url, *d
	}
	if is := f.own(); is != nil {
		return f.url, is.Domain
	}
	return "", ""
}

// run asks until ctx is done. Without --writes-to, f is nil.
func (f *first) run(ctx context.Context) {
	if f == nil {
		return
	}
	tick := time.NewTicker(firstEvery)
	defer tick.Stop()
	for {
		f.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask reads the role of the region. If JetStream does not answer, the last answer stays.
func (f *first) ask(ctx context.Context) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstWithin)
	defer cancel()
	js, err := jetstream.New(f.nats)
	if err != nil {
		return
	}
	root, err := js.Stream(ctx, f.root)
	if err != nil {
		return
	}
	if region, err := wire.ParseRegion(root.CachedInfo().Config.Metadata); err == nil {
		f.domain.Store(&region.Follows)
	}
}
