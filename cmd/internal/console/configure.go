package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

type configureData struct {
	Name    string
	Now     wire.Config
	Choice  Choice
	Preview bool // there is something to look at and to save
	Text    string
	Aheads  []link
	Within  string
	Today   forecast
	Then    forecast
	Confirm string // what is wrong with the name that was typed
	Typed   string
	Refused string // why lapse refused the configuration
	Etag    string
	Once    string
}

// configure shows the form, and what the configuration that was chosen would do.
func configure(v *visit) error {
	data, err := v.preview(v.r.URL.Query())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if data.Choice.wrong() {
		status = http.StatusBadRequest
	}
	return v.showConfigure(status, data)
}

func (v *visit) showConfigure(status int, data *configureData) error {
	return v.show(status, "configure", v.page("Configure "+v.collection, "overview", data, v.crumbs()...))
}

// preview is the effect of a choice. It changes nothing.
func (v *visit) preview(form url.Values) (*configureData, error) {
	data := &configureData{Name: v.collection, Once: once()}
	var err error
	if data.Now, _, err = v.config(v.collection); err != nil {
		return nil, err
	}
	data.Etag = data.Now.Etag.String()
	data.Choice = readChoice(form, data.Now)
	if !choiceMade(form) || data.Choice.wrong() {
		return data, nil
	}
	data.Preview = data.Now.Etag == 0 || !data.Choice.Same(data.Now)
	if !data.Preview {
		data.Text = "This is the present configuration: there is nothing to save."
		return data, nil
	}
	within, offered := v.ahead("", data.Choice.Default())
	data.Within = within.Text
	for _, a := range offered {
		href := with(collectionHref(v.collection, "configure"), append(data.Choice.Parameters(), "within", a.Name)...)
		data.Aheads = append(data.Aheads, link{a.Text, href, a == within})
	}
	today, missing := v.forecast(within, "")
	data.Today.Missing = missing
	then, missing := v.forecast(within, data.Choice.Default(), data.Choice.limits()...)
	data.Then.Missing = missing
	var most int64
	for _, reply := range []*wire.ForecastReply{today, then} {
		if reply != nil {
			most = max(most, mostOf(reply.Buckets))
		}
	}
	if today != nil {
		data.Today.Chart = newChart(today.Buckets, most)
		data.Today.Later = v.later(data.Today.Chart, "")
	}
	if then != nil {
		data.Then.Chart = newChart(then.Buckets, most)
		data.Then.Later = v.later(data.Then.Chart, data.Choice.Default())
		if then.AtOnce != nil {
			data.Then.AtOnce = *then.AtOnce
		}
		if then.Outside != nil {
			data.Then.Outside, data.Then.OutsideMore = *then.Outside, then.OutsideMore
		}
	}
	return data, nil
}

// Expires reports whether the change would expire documents at once, or nobody can tell.
func (d *configureData) Expires() bool {
	return d.Then.AtOnce > 0 || d.Then.Missing != "" && !d.Choice.SameDefault(d.Now)
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
	case data.Choice.wrong():
		return v.showConfigure(http.StatusBadRequest, data)
	case etag != data.Etag && data.Choice.Same(data.Now): // as after a double click
		return v.redirect(with(collectionHref(v.collection), "done", "same"))
	case etag != data.Etag:
		data.Refused = "Somebody else has configured the collection since you looked. Below is the effect on the present " +
			"configuration."
		return v.showConfigure(http.StatusPreconditionFailed, data)
	case data.Preview && data.Expires():
		if data.Confirm, data.Typed = v.confirmed(v.collection), v.r.PostForm.Get("confirm"); data.Confirm != "" {
			return v.showConfigure(http.StatusBadRequest, data)
		}
	}
	body, err := json.Marshal(data.Choice.Config())
	if err != nil {
		return err
	}
	a, err := v.write(http.MethodPut, apiCollectionPath(v.collection), body, "If-Match", quoted(etag))
	if s := problemOf(err).Status; s == http.StatusBadRequest || s == http.StatusPreconditionFailed {
		data.Refused = err.Error()
		return v.showConfigure(s, data)
	}
	if err != nil {
		return err
	}
	return v.done(a, collectionHref(v.collection), "configured")
}

// Human is the default TTL that was chosen, for people.
func (d *configureData) Human() string { return ttlText(d.Choice.TTL) }

// The modes: what the default TTL is.
const (
	off   = "off"   // nothing expires
	none  = "none"  // only documents with a ttl of their own expire
	after = "after" // a number of seconds
)

// Choice is what the form says.
type Choice struct {
	Mode     string
	After    string // as it was typed
	Indexing wire.Indexing
	Error    string // what is wrong with After; empty if nothing is
	TTL      *int32 // as in a configuration

	Fields []field     // the other properties, as they were typed
	more   wire.Config // these properties alone
}

// wrong reports whether something that was typed is not valid.
func (c Choice) wrong() bool {
	return c.Error != "" || slices.ContainsFunc(c.Fields, func(f field) bool { return f.Error != "" })
}

// choiceMade reports whether somebody has chosen anything in a form.
func choiceMade(form url.Values) bool { return form.Has("mode") }

// readChoice reads a form; the present configuration if nothing was chosen.
func readChoice(form url.Values, now wire.Config) Choice {
	if !choiceMade(form) {
		return choiceOf(now)
	}
	c := Choice{Mode: form.Get("mode"), After: strings.TrimSpace(form.Get("after")),
		Indexing: wire.Indexing(form.Get("indexing"))}
	if c.Indexing == "" {
		c.Indexing = now.IndexingMode
	}
	c.readMore(form, now)
	switch c.Mode {
	case off:
	case none:
		c.TTL = new(int32(ttlrules.NoDefault))
	default:
		c.Mode = after
		n, ok := seconds(c.After)
		if !ok || n < 1 || n > ttlrules.MaxSeconds {
			c.Error = fmt.Sprintf("%s is not valid: use a whole number of seconds from 1 to %d, or a duration such as 90s, "+
				"2h or 7d", wire.Quote(c.After), ttlrules.MaxSeconds)
			return c
		}
		c.TTL = new(int32(n))
	}
	return c
}

// readMore reads the properties beside the default and the index; the present ones if the form does
// not have them.
func (c *Choice) readMore(form url.Values, now wire.Config) {
	if form.Has(moreField) {
		c.Fields, c.more = readFields(form, now)
		return
	}
	c.Fields, c.more = fieldsOf(now), othersOf(now)
}

// moreField is a hidden field of a form that has the other properties: an empty one is sent as nothing.
const moreField = "more"

// choiceOf is the choice that leads to a configuration.
func choiceOf(config wire.Config) Choice {
	c := Choice{Mode: off, Indexing: config.IndexingMode, TTL: config.DefaultTTL}
	c.Fields, c.more = fieldsOf(config), othersOf(config)
	switch ttl := config.DefaultTTL; {
	case ttl == nil:
	case *ttl == int32(ttlrules.NoDefault):
		c.Mode = none
	default:
		c.Mode, c.After = after, strconv.Itoa(int(*ttl))
	}
	return c
}

// seconds reads a number of seconds, or a duration of whole seconds.
func seconds(text string) (n int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	d, err := wire.ParseDuration(text)
	return int64(d / time.Second), err == nil && d%time.Second == 0
}

// Parameters are the parameters of a path that lead to the same choice.
func (c Choice) Parameters() []string {
	parameters := []string{"mode", c.Mode, "after", c.After, "indexing", string(c.Indexing), moreField, yes}
	for _, f := range c.Fields {
		parameters = append(parameters, f.Name, f.Value)
	}
	return parameters
}

// limits are maxLife and the limits of the TTL, as parameters of a forecast.
func (c Choice) limits() (parameters []string) {
	parameters = []string{"maxLife", strconv.Itoa(int(c.more.MaxLife))}
	for name, n := range map[string]int32{"minTtl": c.more.MinTTL, "maxTtl": c.more.MaxTTL} {
		if n != 0 {
			parameters = append(parameters, name, strconv.Itoa(int(n)))
		}
	}
	return parameters
}

// Default is the default TTL as JSON has it.
func (c Choice) Default() string {
	if c.TTL == nil {
		return "null"
	}
	return strconv.Itoa(int(*c.TTL))
}

// Config is the whole configuration.
func (c Choice) Config() wire.Config {
	config := c.more
	config.DefaultTTL, config.IndexingMode = c.TTL, c.Indexing
	return config
}

// SameDefault reports whether a configuration has the same default TTL and maxLife.
func (c Choice) SameDefault(as wire.Config) bool {
	return c.Default() == choiceOf(as).Default() && c.more.MaxLife == as.MaxLife
}

// Same reports whether a configuration that was made is the same.
func (c Choice) Same(as wire.Config) bool {
	return as.Etag != 0 && reflect.DeepEqual(c.Config(), as.Published())
}
