package httpapi

import (
	"encoding/json"
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
	f := wire.TextFields(values)
	delete(f, "where")
	conditions, err := entries.Merge(values["where"])
	if err != nil {
		return access.BadRequest("%s", err)
	}
	if len(conditions) > 0 {
		where := make(map[string]json.RawMessage, len(conditions))
		for pointer, condition := range conditions {
			where[pointer] = condition
		}
		if f["where"], err = json.Marshal(where); err != nil {
			return err
		}
	}
	order, err := entries.OrderOf(values.Get("order"))
	if err != nil {
		return access.BadRequest("%s", err)
	}
	f.SetText("order", order)
	opts, err := service.QueryOf(f)
	if err != nil {
		return access.OfRead(err)
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
