package httpapi

import (
	"net/http"
	"net/url"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// queryDocuments answers a query whose body is as over NATS.
func queryDocuments(a *API, w http.ResponseWriter, r *request) error {
	if _, err := r.query(); err != nil {
		return err
	}
	body, err := r.typed(jsonType)
	if err != nil {
		return err
	}
	opts, err := service.ParseQuery(body)
	if err != nil {
		return access.OfRead(err)
	}
	return a.answerQuery(w, r, opts)
}

// selectDocuments answers a query that is in the parameters of a list.
func (a *API) selectDocuments(w http.ResponseWriter, r *request) error {
	values, err := r.parameters("where", "where", "order", "until", "within", "limit", "continuation")
	if err != nil {
		return err
	}
	opts := sink.QueryOptions{Continuation: values.Get("continuation")}
	where, err := entries.Merge(values["where"])
	if err == nil {
		opts.Where, err = entries.ParseWhere(where)
	}
	if err != nil {
		return access.BadRequest("%s", err)
	}
	order, err := entries.OrderOf(values.Get("order"))
	if err == nil {
		opts.Order, err = entries.ParseOrder(order)
	}
	if err != nil {
		return access.BadRequest("%s", err)
	}
	if opts.Until, opts.Within, err = span(values); err != nil {
		return err
	}
	if opts.Limit, err = number(values, "limit", wire.MaxListLimit); err != nil {
		return err
	}
	return a.answerQuery(w, r, opts)
}

// isQuery reports whether the parameters of a list are those of a query: conditions, or an order that a list has not.
func isQuery(values url.Values) bool {
	order := values.Get("order")
	return values.Has("where") || order != "" && order != string(wire.ByDeadline)
}

func (a *API) answerQuery(w http.ResponseWriter, r *request, opts sink.QueryOptions) error {
	if err := r.hold.Expect(r.Context(), pageHeld); err != nil {
		return err
	}
	opts.MaxBytes = pageBytes
	page, err := a.opts.Reader.Query(r.Context(), r.collection, opts)
	if err != nil {
		return access.OfRead(err)
	}
	return send(w, r, service.EncodeQuery(page))
}
