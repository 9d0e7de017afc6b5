package httpapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

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

// mostIDs is how many ids a request for the documents with some ids may have.
const mostIDs = 100

// getDocuments answers with the documents that have the ids in ?ids=, in the order of the ids, and names
// the ids that no document has. It reads as many at a time as a page has room for, whatever their size,
// and names the ids that it has not read once the page is full. Like a list, it renews no clock.
func (a *API) getDocuments(w http.ResponseWriter, r *request) error {
	ids, err := r.ids()
	if err != nil {
		return err
	}
	if err := r.hold.Expect(r.Context(), pageHeld); err != nil {
		return err
	}
	var page sink.Page
	missing, chunk := []string{}, max(1, pageBytes/int(a.mostBytes()))
	for size := 0; len(ids) > 0 && size < pageBytes; ids = ids[min(chunk, len(ids)):] {
		some := ids[:min(chunk, len(ids))]
		found, err := a.opts.GetMany(r.Context(), r.collection, some)
		if err != nil {
			return access.OfRead(err)
		}
		for _, id := range some {
			if len(found) == 0 || found[0].ID != id {
				missing = append(missing, id)
				continue
			}
			size += len(found[0].Body)
			page.Documents, found = append(page.Documents, found[0]), found[1:]
		}
	}
	rest, err := json.Marshal(struct {
		Missing []string `json:"missing"`
		Unread  []string `json:"unread,omitempty"`
	}{missing, ids})
	if err != nil {
		return err
	}
	body := service.EncodePage(page)
	body[len(body)-1] = ','
	return send(w, r, append(body, rest[1:]...))
}

// ids reads that parameter. As in a URI template ({?ids}), the ids are percent-encoded, and the commas
// between them are not: a comma within an id is %2C.
func (r *request) ids() (ids []string, err error) {
	if _, err := r.query("ids"); err != nil {
		return nil, err
	}
	list := ""
	for parameter := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if value, ok := strings.CutPrefix(parameter, "ids="); ok {
			list = value
		}
	}
	for text := range strings.SplitSeq(list, ",") {
		id, err := url.QueryUnescape(text)
		if err == nil {
			err = wire.CheckID(id)
		}
		if err != nil {
			return nil, access.BadRequest("ids: %s (separate ids by commas, and write a comma within an id as %%2C)", err)
		}
		ids = append(ids, id)
	}
	if len(ids) > mostIDs {
		return nil, access.BadRequest("ids has %d ids: use at most %d", len(ids), mostIDs)
	}
	return ids, nil
}
