package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// patchTries is how often a change of a configuration is tried again because another came
// between.
const patchTries = 5

// listCollections lists the collections for which the token is.
func listCollections(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("limit", "continuation")
	if err != nil {
		return err
	}
	opts := sink.CollectionsOptions{Among: r.grant.Collections}
	if opts.Limit, opts.Continuation, err = wire.ParsePage(wire.TextFields(query)); err != nil {
		return access.OfRead(err)
	}
	page, err := a.opts.Reader.Collections(r.Context(), opts)
	if err != nil {
		return access.OfRead(err)
	}
	return encode(w, r, page, nil)
}

func getConfig(a *API, w http.ResponseWriter, r *request) error {
	if _, err := r.query(); err != nil {
		return err
	}
	none, err := parseCondition(r.Header, "If-None-Match")
	if err != nil {
		return err
	}
	config, err := a.opts.Reader.Config(r.Context(), r.collection)
	if err != nil {
		return access.OfRead(err)
	}
	setVersion(w.Header(), config.Etag, 0, nil)
	if none.set && config.Etag != 0 && none.has(config.Etag, true) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return encode(w, r, config, nil)
}

// configCondition is the condition of a configuration or a drop.
func configCondition(r *request) (string, error) {
	ifMatch, create, err := writeConditions(r.Header)
	if err == nil && create {
		return "", access.BadRequest("If-None-Match is not supported on collections: use If-Match")
	}
	return ifMatch, err
}

func putConfig(a *API, w http.ResponseWriter, r *request) error {
	ifMatch, err := configCondition(r)
	if err != nil {
		return err
	}
	body, err := r.typed(jsonType)
	if err != nil {
		return err
	}
	m, err := r.message(a.opts.Prefix.Config(r.collection), ifMatch, body)
	if err != nil {
		return err
	}
	return a.write(w, r, m)
}

// patchConfig changes the properties that the client names. A message is a whole configuration,
// so it reads the present one, and writes on the condition that no other came between. The first
// configuration of a collection has nothing to compare with.
func patchConfig(a *API, w http.ResponseWriter, r *request) error {
	given, err := configCondition(r)
	if err != nil {
		return err
	}
	body, err := r.typed(patchType)
	if err != nil {
		return err
	}
	patch, err := parsePatch(body)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		config, err := a.opts.Reader.Config(r.Context(), r.collection)
		if errors.Is(err, sink.ErrNoCollection) {
			config, err = wire.Config{IndexingMode: wire.Consistent}, nil // the change makes it
		}
		if err != nil {
			return access.OfRead(err)
		}
		m, err := r.message(a.opts.Prefix.Config(r.collection), given, body)
		if err != nil {
			return err
		}
		if m.Body, err = merge(config, patch); err != nil {
			return err
		}
		if given == "" && config.Etag != 0 {
			m.IfMatch = config.Etag.String()
		}
		err = a.write(w, r, m)
		var p *access.Problem
		if given != "" || try == patchTries || m.ID != "" || !errors.As(err, &p) ||
			p.Status != http.StatusPreconditionFailed {
			return err
		}
	}
}

// parsePatch reads a merge patch of a configuration.
func parsePatch(body []byte) (map[string]json.RawMessage, error) {
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil || patch == nil {
		return nil, access.BadRequest("the body is not a JSON object: use a merge patch such as {\"defaultTtl\": 3600}")
	}
	return patch, nil
}

// merge applies a merge patch to a configuration. Whether the result is valid, lapse decides.
func merge(config wire.Config, patch map[string]json.RawMessage) ([]byte, error) {
	current, err := json.Marshal(config.Published())
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(current, &members); err != nil {
		return nil, err
	}
	for name, value := range patch {
		if bytes.Equal(value, []byte("null")) {
			delete(members, name)
		} else {
			members[name] = value
		}
	}
	return json.Marshal(members)
}

// exists reports whether a collection is configured or holds documents.
func (a *API) exists(r *request) (bool, error) {
	ctx, cancel := context.WithTimeout(r.Context(), readWithin)
	defer cancel()
	config, err := a.opts.Reader.Config(ctx, r.collection)
	switch {
	case errors.Is(err, sink.ErrNoCollection):
		return false, nil
	case err != nil:
		return false, err
	case config.Etag != 0, config.DefaultTTL != nil, config.IndexingMode != wire.Consistent:
		return true, nil
	}
	count, err := a.opts.Reader.Count(ctx, r.collection)
	return count.Live+count.Expired > 0, err
}

func dropCollection(a *API, w http.ResponseWriter, r *request) error {
	ifMatch, err := configCondition(r)
	if err != nil {
		return err
	}
	if _, err := r.typed(""); err != nil {
		return err
	}
	m, err := r.message(a.opts.Prefix.Drop(r.collection), ifMatch, nil)
	if err != nil {
		return err
	}
	exists, err := a.exists(r)
	if err != nil {
		return access.OfRead(err)
	}
	if !exists {
		return a.dropNothing(w, r, m)
	}
	return a.write(w, r, m)
}

// never is a condition that no collection meets: no configuration has this etag.
var never = wire.Etag(math.MaxUint64).String()

// dropNothing answers the drop of a collection that does not exist. With an Idempotency-Key this may
// be a drop that is repeated, which only the log knows: the message is for it alone, and its
// condition sees to it that nothing is dropped that has come in between.
func (a *API) dropNothing(w http.ResponseWriter, r *request, m client.Message) error {
	if m.ID != "" {
		m.IfMatch = cmp.Or(m.IfMatch, never)
		err := a.write(w, r, m)
		var p *access.Problem
		if !errors.As(err, &p) || p.Status != http.StatusPreconditionFailed {
			return err
		}
	}
	return access.NewProblem(http.StatusNotFound, access.NoCollection, "collection %s does not exist: there is nothing "+
		"to drop", r.collection)
}

func countDocuments(a *API, w http.ResponseWriter, r *request) error {
	if _, err := r.query(); err != nil {
		return err
	}
	count, err := a.opts.Reader.Count(r.Context(), r.collection)
	return encode(w, r, count, err)
}

func forecastDocuments(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query(wire.ForecastFields...)
	if err != nil {
		return err
	}
	for _, name := range []string{"minTtl", "maxTtl"} { // in a body, 0 is none
		if n, err := strconv.Atoi(query.Get(name)); err == nil && n == 0 {
			return access.BadRequest("%s 0 is not valid: use a whole number from 1 to %d", name, ttlrules.MaxSeconds)
		}
	}
	opts, err := wire.ParseForecast(wire.TextFields(query))
	if err != nil {
		return access.OfRead(err)
	}
	forecast, err := a.opts.Reader.Forecast(r.Context(), r.collection, opts)
	return encode(w, r, forecast, err)
}
