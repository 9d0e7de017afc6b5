package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/entries"
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
	data := collectionData{Name: v.collection, Within: within.Text, DropError: dropError,
		Typed: v.r.PostForm.Get("confirm"), Once: once()}
	config, exists, err := v.config(v.collection)
	if err != nil {
		return err
	}
	data.Config, data.Closed = config, !exists
	data.Settings = fieldsOf(data.Config)
	var count wire.CountReply
	if err := v.readAny(apiCollectionPath(v.collection, "count"), &count); err != nil {
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
	data.First, data.Order, data.Prefix, data.Query = after == "", query.Get(orderField), query.Get("prefix"),
		v.readQuery()
	all := with(collectionHref(v.collection), "within", query.Get("within"))
	byDeadline := string(wire.ByDeadline)
	queried := data.Query.Asked
	data.Orders = []link{
		{"All", all, data.Order == "" && !queried},
		{"Next to expire", with(all, orderField, byDeadline), data.Order == byDeadline && !queried},
	}
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
	err = v.readAny(apiCollectionPath(v.collection, "documents"), &page, "limit", strconv.Itoa(perPage),
		"continuation", after, "order", data.Order, "prefix", data.Prefix)
	switch s := problemOf(err).Status; {
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
	text := visible(strings.Join(strings.Fields(strings.ToValidUTF8(string(document[:min(len(document), most)]), "�")),
		" "))
	runes := []rune(text)
	if len(runes) > snippetRunes || len(document) > most {
		return string(runes[:min(len(runes), snippetRunes)]) + "…"
	}
	return text
}

// forecast asks for a forecast, with another default TTL if there is one. missing is why there is
// none.
func (v *visit) forecast(within ahead, ttl string, limits ...string) (reply *wire.ForecastReply, missing string) {
	reply = &wire.ForecastReply{}
	parameters := []string{"within", within.Name, "buckets", strconv.Itoa(within.buckets), "defaultTtl", ttl}
	parameters = append(parameters, limits...)
	err := v.readAny(apiCollectionPath(v.collection, "forecast"), reply, parameters...)
	if err != nil {
		return nil, err.Error()
	}
	return reply, ""
}

// confirmed is what is wrong unless the name in the form is the one that it asks for, as it is or as
// the page shows it.
func (v *visit) confirmed(name string) string {
	if typed := v.r.PostForm.Get("confirm"); typed == name || typed == visible(name) {
		return ""
	}
	return "That is not the name. To do it, type " + visible(name)
}

func drop(v *visit) error {
	if text := v.confirmed(v.collection); text != "" && v.grant.Write {
		return v.showCollection(http.StatusBadRequest, text)
	}
	a, err := v.write(http.MethodDelete, apiCollectionPath(v.collection), nil, "If-Match",
		quoted(v.r.PostForm.Get("etag")))
	if err != nil {
		return err
	}
	return v.done(a, "/", "dropped")
}

// badField is the reason for which lapse refused an input, to be shown at its field; empty if the
// error is about something else.
func badField(err error) string {
	switch problemOf(err).Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return err.Error()
	}
	return ""
}

// refused is the answer to an action that the token does not allow.
func refused() error {
	return access.NewProblem(http.StatusForbidden, access.NotAllowed, "This token can only read.")
}

// queryForm is the form of a query on the page of a collection, and what came of it.
type queryForm struct {
	Where      string // as it was typed
	Order      string // as it was typed; "" for a list in no particular order
	Scan       bool
	WhereError string // what is wrong with the conditions, or why there is no answer to them
	OrderError string
	NoIndex    bool   // no index serves the query
	Asked      bool   // the page shows the results of a query
	Count      string // how far the page came
}

// The names of the fields of the form.
const (
	whereField = "where"
	orderField = "order"
	scanField  = "scan"
)

// readQuery reads the form from the address of a page. The order by deadline alone is one of a list.
func (v *visit) readQuery() (form queryForm) {
	query := v.r.URL.Query()
	form.Where, form.Order = strings.TrimSpace(query.Get(whereField)), strings.TrimSpace(query.Get(orderField))
	form.Scan = query.Get(scanField) == yes
	form.Asked = form.Where != "" || form.Order != "" && form.Order != string(wire.ByDeadline)
	return form
}

// parameters are those of a page with the same query.
func (f queryForm) parameters() []string {
	scan := ""
	if f.Scan {
		scan = yes
	}
	return []string{whereField, f.Where, orderField, f.Order, scanField, scan}
}

// wrong reports whether something that was typed is not valid.
func (f queryForm) wrong() bool { return f.WhereError != "" || f.OrderError != "" }

// request is the request of the form.
func (f *queryForm) request() (req wire.QueryRequest) {
	order, err := entries.OrderOf(f.Order)
	if err != nil {
		f.OrderError = err.Error()
	}
	where, err := entries.Merge(conditions(f.Where))
	if err != nil {
		f.WhereError = err.Error()
	}
	req = wire.QueryRequest{Limit: perPage, Order: wire.Order(order), Scan: f.Scan,
		Where: make(map[string]json.RawMessage)}
	for pointer, condition := range where {
		req.Where[pointer] = condition
	}
	return req
}

var (
	quotedText     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	conditionStart = regexp.MustCompile(`(?:^|[ \t])[^ \t=<>^]+[ \t]*(?:\^=|[<>]=?|=)`)
)

// conditions are the conditions of a text: each line has one, or several with spaces between them. A line goes on to
// another where a name and an operator follow a space outside quotes.
func conditions(text string) (all []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		plain := quotedText.ReplaceAllStringFunc(line, func(quoted string) string { return strings.Repeat("_", len(quoted)) })
		begin := 0
		for _, found := range conditionStart.FindAllStringIndex(plain, -1) {
			if found[0] > 0 {
				all = append(all, strings.TrimSpace(line[begin:found[0]]))
				begin = found[0]
			}
		}
		all = append(all, strings.TrimSpace(line[begin:]))
	}
	return all
}

// ask reads a page of the query. What is wrong with it is in the form, and no error.
func (v *visit) ask(f *queryForm, after string) (page wire.QueryReply, missing string, err error) {
	req := f.request()
	if f.wrong() {
		return page, "", nil
	}
	req.Continuation = after
	page, err = v.query(req)
	switch status := problemOf(err).Status; {
	case err == nil:
		f.Count = examined(page.Examined)
		return page, "", nil
	case problemOf(err).Code == access.NoCollection:
		return page, "", nil
	case status == http.StatusBadRequest:
		f.WhereError, f.NoIndex = err.Error(), problemOf(err).Code == access.NoIndex
		return page, "", nil
	case status == 0:
		return page, "", err
	}
	return page, err.Error(), nil
}

// examined says how much lapse has read for a page.
func examined(n int64) string {
	if n == 1 {
		return "1 was examined for this page"
	}
	return fmt.Sprintf("%d were examined for this page", n)
}
