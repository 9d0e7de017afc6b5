package console

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/seed18712806/lapse/cmd/internal/console/view"
	"github.com/seed18712806/lapse/sink/wire"
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
	if data.Now, _, err = v.api.Config(v.collection); err != nil {
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
		data.Refused = "Somebody else has configured the collection since you looked. Below is the effect on the present configuration."
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
	if s := statusOf(err); s == http.StatusBadRequest || s == http.StatusPreconditionFailed {
		data.Refused = err.Error()
		return v.showConfigure(s, data)
	}
	if err != nil {
		return err
	}
	return v.done(a, collectionHref(v.collection), "configured")
}

// Human is the default TTL that was chosen, for people.
func (d *configureData) Human() string { return view.TTL(d.Choice.TTL) }
