package httpapi

import (
	"net/http"
	"slices"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/wire"
)

// importHeld is what an import holds: a quarter of what package client may have in flight, which only large
// documents fill.
const importHeld = 8 << 20

// importDocuments writes one document for each line.
func importDocuments(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("op")
	if err != nil {
		return err
	}
	op := wire.Upsert
	if query.Has("op") {
		op = wire.Op(query.Get("op"))
	}
	if !slices.Contains(wire.Ops, op) {
		return access.BadRequest("op %s is not valid: use one of %v", wire.Quote(string(op)), wire.Ops)
	}
	if err := checkType(r, mediaType); err != nil {
		return err
	}
	m, err := r.message("", "", nil)
	if err != nil {
		return err
	}
	if m.ExpiresAt != "" || m.NotAfter != "" || m.Clock != "" || m.Target != "" {
		return access.BadRequest("%s, %s, %s and %s have no meaning for many documents at once: use them with a single one", wire.HeaderExpiresAt, wire.HeaderNotAfter, wire.HeaderClock, wire.HeaderTarget)
	}
	if err := r.hold.Expect(r.Context(), importHeld); err != nil {
		return err
	}
	under := a.meters.under.WithLabelValues("imports")
	under.Inc()
	defer under.Dec()
	return importLines(w, r.Request, importOptions{
		Client: a.opts.Client, Prefix: a.opts.Prefix, Collection: r.collection, Op: op, Key: m.ID, Traceparent: m.Traceparent,
		MaxDocument: int(a.mostBytes()), Digest: digest, Repeated: a.isRepeated,
		Outcome: func(status int) { a.meters.lines.WithLabelValues(statusText(status)).Inc() },
	})
}
