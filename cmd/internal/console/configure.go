package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/console/chart"
	"github.com/seed18712806/lapse/cmd/internal/console/view"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// The choices of the form for the default TTL.
const (
	choiceOff   = "off"
	choiceNone  = "none"
	choiceAfter = "after"
)

// choice is what the form for a configuration says.
type choice struct {
	Mode     string // one of the choices
	After    string // as it was typed
	Indexing wire.Indexing
	Error    string // what is wrong with After

	ttl *int32
}

type configureData struct {
	Name    string
	Now     wire.Config
	Choice  choice
	Preview bool // there is something to look at and to save
	Text    string
	TTL     *int32
	Aheads  []link
	Within  string
	Today   forecast
	Then    forecast
	Confirm string // what is wrong with the name that was typed
	Refused string // why lapse refused the configuration
	Etag    string
	Once    string
}

// readChoice reads a form; the present configuration if nothing was sent.
func readChoice(form url.Values, now wire.Config) choice {
	if !form.Has("mode") {
		return choiceOf(now)
	}
	c := choice{Mode: form.Get("mode"), After: strings.TrimSpace(form.Get("after")), Indexing: wire.Indexing(form.Get("indexing"))}
	if c.Indexing == "" {
		c.Indexing = now.IndexingMode
	}
	switch c.Mode {
	case choiceOff:
	case choiceNone:
		none := int32(ttlrules.NoDefault)
		c.ttl = &none
	default:
		c.Mode = choiceAfter
		n, err := strconv.ParseInt(c.After, 10, 64)
		ok := err == nil
		if !ok {
			n, ok = seconds(c.After)
		}
		if !ok || n < 1 || n > ttlrules.MaxSeconds {
			c.Error = fmt.Sprintf("%s is not valid: use a whole number of seconds from 1 to %d, or a duration such as 90s, 2h or 7d", wire.Quote(c.After), ttlrules.MaxSeconds)
			return c
		}
		ttl := int32(n)
		c.ttl = &ttl
	}
	return c
}

func choiceOf(now wire.Config) choice {
	c := choice{Mode: choiceOff, Indexing: now.IndexingMode, ttl: now.DefaultTTL}
	switch {
	case now.DefaultTTL == nil:
	case *now.DefaultTTL == int32(ttlrules.NoDefault):
		c.Mode = choiceNone
	default:
		c.Mode, c.After = choiceAfter, strconv.Itoa(int(*now.DefaultTTL))
	}
	return c
}

// parameters are the parameters that lead to the same choice.
func (c choice) parameters() []string {
	return []string{"mode", c.Mode, "after", c.After, "indexing", string(c.Indexing)}
}

// json is the default TTL as the API has it.
func (c choice) json() string {
	if c.ttl == nil {
		return "null"
	}
	return strconv.Itoa(int(*c.ttl))
}

// same reports whether a choice is the present configuration.
func (c choice) same(now wire.Config) bool {
	return c.Indexing == now.IndexingMode && c.json() == choiceOf(now).json() && now.Etag != 0
}

// configure shows the form, and the effect of what was chosen in it.
func configure(v *visit) error {
	data, err := v.preview(v.r.URL.Query())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if data.Choice.Error != "" {
		status = http.StatusBadRequest
	}
	return v.showConfigure(status, data)
}

func (v *visit) showConfigure(status int, data *configureData) error {
	return v.show(status, "configure", v.page("Configure "+v.collection, "overview", data, v.crumbs()...))
}

// preview is the effect of a choice. It changes nothing.
func (v *visit) preview(form url.Values) (*configureData, error) {
	within := v.ahead()
	data := &configureData{Name: v.collection, Within: within.Text, Once: once()}
	if err := v.read(apiPath(v.collection), &data.Now); err != nil {
		return nil, err
	}
	data.Etag = data.Now.Etag.String()
	data.Choice = readChoice(form, data.Now)
	data.TTL = data.Choice.ttl
	if !form.Has("mode") || data.Choice.Error != "" {
		return data, nil
	}
	data.Preview = !data.Choice.same(data.Now)
	if !data.Preview {
		data.Text = "This is the present configuration: there is nothing to save."
		return data, nil
	}
	for _, a := range aheads {
		href := with(collectionHref(v.collection, "configure"), append(data.Choice.parameters(), "within", a.Name)...)
		data.Aheads = append(data.Aheads, link{a.Text, href, a == within})
	}
	today, missing := v.forecast(within, "")
	data.Today.Missing = missing
	then, missing := v.forecast(within, data.Choice.json())
	data.Then.Missing = missing
	var most int64
	for _, reply := range []*wire.ForecastReply{today, then} {
		if reply != nil {
			most = max(most, chart.Most(reply.Buckets))
		}
	}
	if today != nil {
		data.Today.Chart = chart.New(today.Buckets, most)
	}
	if then != nil {
		data.Then.Chart = chart.New(then.Buckets, most)
		if then.AtOnce != nil {
			data.Then.AtOnce = *then.AtOnce
		}
	}
	return data, nil
}

// Expires reports whether the change would expire documents at once, or nobody can tell.
func (d *configureData) Expires() bool {
	return d.Then.AtOnce > 0 || d.Then.Missing != "" && d.Choice.json() != choiceOf(d.Now).json()
}

// saveConfiguration saves what was previewed. If it expires documents, it asks for the name of
// the collection.
func saveConfiguration(v *visit) error {
	if !v.grant.Write {
		return refused()
	}
	data, err := v.preview(v.r.PostForm)
	if err != nil {
		return err
	}
	etag := v.r.PostForm.Get("etag")
	switch {
	case data.Choice.Error != "":
		return v.showConfigure(http.StatusBadRequest, data)
	case etag != data.Etag:
		data.Refused = "Somebody else has configured the collection since you looked. Below is the effect on the present configuration."
		return v.showConfigure(http.StatusPreconditionFailed, data)
	case data.Preview && data.Expires():
		if data.Confirm = v.confirmed(v.collection); data.Confirm != "" {
			return v.showConfigure(http.StatusBadRequest, data)
		}
	}
	body, err := json.Marshal(wire.Config{DefaultTTL: data.TTL, IndexingMode: data.Choice.Indexing})
	if err != nil {
		return err
	}
	a, err := v.write(http.MethodPut, apiPath(v.collection), body, "If-Match", quoted(etag))
	if s := statusOf(err); s == http.StatusBadRequest || s == http.StatusPreconditionFailed {
		data.Refused = err.Error()
		return v.showConfigure(s, data)
	}
	if err != nil {
		return err
	}
	return v.redirect(with(collectionHref(v.collection), "done", a.done("configured")))
}

// Human is the default TTL that was chosen, for people.
func (d *configureData) Human() string { return view.TTL(d.TTL) }

// Longest is the longest time that a default may have.
func (d *configureData) Longest() string { return view.Period(ttlrules.MaxSeconds * time.Second) }
