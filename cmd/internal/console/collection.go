package console

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/console/view"
	"github.com/seed18712806/lapse/sink/wire"
)

// forecast is a chart of a collection's future, or why there is none.
type forecast struct {
	Chart
	Missing     string
	Later       int64 // documents that expire behind the chart
	AtOnce      int64 // documents that another default would expire at once
	Outside     int64 // documents that do not keep to the limits; OutsideMore: at least
	OutsideMore bool
}

type collectionData struct {
	Name      string
	Config    wire.Config
	Settings  []field
	Exists    bool // it is configured, or has documents; true also where that is not known
	Closed    bool // it does not exist, and no document makes it: it has to be configured
	Count     *wire.CountReply
	Missing   string // why there is no count
	Aheads    []link
	Within    string
	Forecast  forecast
	History   series
	Counted   int // collections whose documents are counted
	Orders    []link
	Order     string // "deadline", or empty
	Prefix    string // of the ids in the list
	Query     queryForm
	Documents []row
	Begin     string // the first page
	Next      string
	First     bool
	NoList    string // why there are no documents
	DropError string
	Typed     string // what was typed in place of the name
	Once      string
}

// link is one of several that exclude each other.
type link struct {
	Text, Href string
	Current    bool
}

// row is a document in a list.
type row struct {
	ID, Href  string
	Etag      wire.Etag
	Ts        wire.Time
	ExpiresAt *wire.Time
	Size      int
	Snippet   string
}

// snippetRunes is how much of a document a list shows.
const snippetRunes = 80

func collection(v *visit) error { return v.showCollection(http.StatusOK, "") }

// showCollection shows a collection. dropError is why the name that was typed to drop it was not
// right.
func (v *visit) showCollection(status int, dropError string) error {
	within, offered := v.ahead("")
	data := collectionData{Name: v.collection, Within: within.Text, DropError: dropError, Typed: v.r.PostForm.Get("confirm"), Once: once()}
	config, exists, err := v.api.Config(v.collection)
	if err != nil {
		return err
	}
	data.Config, data.Closed = config, !exists
	data.Settings = fieldsOf(data.Config)
	var count wire.CountReply
	if err := v.api.ReadAny(apiCollectionPath(v.collection, "count"), &count); err != nil {
		data.Missing = err.Error()
	} else {
		data.Count = &count
	}
	data.Exists = data.Config.Etag != 0 || data.Count == nil || count.Live+count.Expired > 0
	for _, a := range offered {
		data.Aheads = append(data.Aheads, link{a.Text, with(collectionHref(v.collection), "within", a.Name), a == within})
	}
	now, missing := v.forecast(within, "")
	data.Forecast = forecast{Missing: missing}
	if now != nil {
		data.Forecast.Chart = newChart(now.Buckets, mostOf(now.Buckets))
		data.Forecast.Later = v.later(data.Forecast.Chart, "")
	}
	data.History, data.Counted = v.c.figures.liveHistory(time.Now(), v.collection), mostCounted
	if v.r.Header.Get("Lapse-Refresh") == "" { // the script does not refresh them
		if err := v.documents(&data); err != nil {
			return err
		}
		if data.Query.wrong() {
			status = http.StatusBadRequest
		}
	}
	return v.show(status, "collection", v.page(v.collection, "overview", data, v.crumbs()[:1]...))
}

// documents reads a page of documents: of a list, or of a query.
func (v *visit) documents(data *collectionData) error {
	query := v.r.URL.Query()
	after := query.Get("after")
	data.First, data.Order, data.Prefix, data.Query = after == "", query.Get(orderField), query.Get("prefix"), v.readQuery()
	all := with(collectionHref(v.collection), "within", query.Get("within"))
	byDeadline := string(wire.ByDeadline)
	queried := data.Query.Asked
	data.Orders = []link{{"All", all, data.Order == "" && !queried}, {"Next to expire", with(all, orderField, byDeadline), data.Order == byDeadline && !queried}}
	found, continuation, err := v.found(data, after)
	if err != nil {
		return err
	}
	for _, d := range found {
		data.Documents = append(data.Documents, row{
			ID: d.ID, Href: documentHref(v.collection, d.ID), Etag: d.Etag, Ts: d.Ts, ExpiresAt: d.ExpiresAt,
			Size: len(d.Document), Snippet: snippet(d.Document),
		})
	}
	data.Begin = with(all, append(data.Query.parameters(), "prefix", data.Prefix)...)
	if continuation != "" {
		data.Next = with(data.Begin, "after", continuation)
	}
	return nil
}

// found are the documents of a page, and what continues it.
func (v *visit) found(data *collectionData, after string) (documents []wire.Document, continuation string, err error) {
	if data.Query.Asked {
		page, missing, err := v.ask(&data.Query, after)
		data.NoList = missing
		return page.Documents, page.Continuation, err
	}
	var page wire.ListReply
	err = v.api.ReadAny(apiCollectionPath(v.collection, "documents"), &page, "limit", strconv.Itoa(perPage), "continuation", after, "order", data.Order, "prefix", data.Prefix)
	switch s := statusOf(err); {
	case err != nil && (s == 0 || s == http.StatusBadRequest):
		return nil, "", err
	case err != nil:
		data.NoList = err.Error()
	}
	return page.Documents, page.Continuation, nil
}

// snippet is the beginning of a document, on one line.
func snippet(document []byte) string {
	const most = 4 * snippetRunes
	text := view.Visible(strings.Join(strings.Fields(strings.ToValidUTF8(string(document[:min(len(document), most)]), "�")), " "))
	runes := []rune(text)
	if len(runes) > snippetRunes || len(document) > most {
		return string(runes[:min(len(runes), snippetRunes)]) + "…"
	}
	return text
}

// forecast asks for a forecast, with another default TTL if there is one. missing is why there is
// none.
func (v *visit) forecast(within ahead, defaultTTL string, limits ...string) (reply *wire.ForecastReply, missing string) {
	reply = &wire.ForecastReply{}
	parameters := append([]string{"within", within.Name, "buckets", strconv.Itoa(within.buckets), "defaultTtl", defaultTTL}, limits...)
	err := v.api.ReadAny(apiCollectionPath(v.collection, "forecast"), reply, parameters...)
	if err != nil {
		return nil, err.Error()
	}
	return reply, ""
}

// confirmed is what is wrong unless the name in the form is the one that it asks for, as it is or as
// the page shows it.
func (v *visit) confirmed(name string) string {
	if typed := v.r.PostForm.Get("confirm"); typed == name || typed == view.Visible(name) {
		return ""
	}
	return "That is not the name. To do it, type " + view.Visible(name)
}

func drop(v *visit) error {
	if text := v.confirmed(v.collection); text != "" && v.grant.Write {
		return v.showCollection(http.StatusBadRequest, text)
	}
	a, err := v.write(http.MethodDelete, apiCollectionPath(v.collection), nil, "If-Match", quoted(v.r.PostForm.Get("etag")))
	if err != nil {
		return err
	}
	return v.done(a, "/", "dropped")
}

// badField is the reason for which lapse refused an input, to be shown at its field; empty if the
// error is about something else.
func badField(err error) string {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return err.Error()
	}
	return ""
}

// refused is the answer to an action that the token does not allow.
func refused() error {
	return access.NewProblem(http.StatusForbidden, access.NotAllowed, "This token can only read.")
}
