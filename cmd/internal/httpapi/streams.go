package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

func followEvents(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("collection", "since", "type")
	if err != nil {
		return err
	}
	kind := live.Kind(cmp.Or(query.Get("type"), string(live.Expired)))
	if kind != live.Expired && kind != live.Due && kind != live.Expiring {
		return access.BadRequest("type %s is not valid: use %s for expiry events, %s for messages, or %s for warnings",
			wire.Quote(string(kind)), live.Expired, live.Due, live.Expiring)
	}
	return a.follow(w, r, kind, query)
}

func followRejections(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("collection", "since")
	if err != nil {
		return err
	}
	return a.follow(w, r, live.Rejected, query)
}

// followChanges sends the documents of a collection, or one of them, as they are now, and then each change.
func followChanges(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("collection", "id")
	if err != nil {
		return err
	}
	req := live.Request{Collection: query.Get("collection"), ID: query.Get("id")}
	if err := wire.CheckCollection(req.Collection); err != nil {
		return access.BadRequest("%s: changes are those of a collection, as in ?collection=orders", err)
	}
	if req.ID != "" || query.Has("id") {
		if err := wire.CheckID(req.ID); err != nil {
			return access.BadRequest("%s", err)
		}
	}
	if err := r.mayUse(req.Collection); err != nil {
		return err
	}
	if req.After, err = lastEventID(r.Header.Get("Last-Event-ID")); err != nil {
		return err
	}
	return a.stream(w, r, "the changes", func() (live.Reason, error) {
		return a.opts.Events.Changes(w, r.Request, req, r.hold)
	})
}

// follow sends the messages of a kind until the client leaves.
func (a *API) follow(w http.ResponseWriter, r *request, kind live.Kind, query url.Values) error {
	req := live.Request{Kind: kind, Collection: query.Get("collection")}
	switch {
	case req.Collection != "":
		if err := wire.CheckCollection(req.Collection); err != nil {
			return access.BadRequest("%s", err)
		}
		if err := r.mayUse(req.Collection); err != nil {
			return err
		}
	case !r.grant.All():
		return access.NewProblem(http.StatusForbidden, access.NotAllowed, "this token is not for all collections: use "+
			"?collection=")
	}
	if err := where(&req, r.Header.Get("Last-Event-ID"), query.Get("since"), time.Now()); err != nil {
		return err
	}
	return a.stream(w, r, "the stream of events", func() (live.Reason, error) {
		return a.opts.Events.Serve(w, r.Request, req, r.hold)
	})
}

// stream has serve send messages until the client leaves. what is what cannot be read if that fails.
func (a *API) stream(w http.ResponseWriter, r *request, what string, serve func() (live.Reason, error)) error {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	under := a.meters.under.WithLabelValues("events")
	under.Inc()
	defer under.Dec()
	reason, err := serve()
	a.meters.ended.WithLabelValues(string(reason)).Inc()
	var full *access.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		return full
	case errors.Is(err, client.ErrNoChanges):
		return access.BadRequest("%s", err)
	}
	return access.NewProblem(http.StatusServiceUnavailable, access.Unavailable, "%s cannot be read: %s", what, err)
}

// where finds the position at which the client begins. After a reconnect the id of its last
// event counts, and not the instant at which it began first.
func where(req *live.Request, lastID, since string, now time.Time) error {
	after, err := lastEventID(lastID)
	if req.After = after; err != nil || after != nil || since == "" {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, since)
	if err != nil {
		ago, err := wire.ParseDuration(since)
		if err != nil {
			return access.BadRequest("since %s is not valid: use an instant such as 2026-11-22T08:00:00Z, or a duration such "+
				"as 90s, 12h or 7d", wire.Quote(since))
		}
		at = now.Add(-ago)
	}
	if at.After(now) {
		return access.BadRequest("since %s is in the future", wire.Quote(since))
	}
	if at.Year() < 1970 {
		at = time.Unix(0, 0)
	}
	req.Since = &at
	return nil
}

// lastEventID reads the header of that name; nil if there is none.
func lastEventID(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > 1<<62 {
		return nil, access.BadRequest("Last-Event-ID %s is not valid: use the id of an event", wire.Quote(text))
	}
	return &n, nil
}
