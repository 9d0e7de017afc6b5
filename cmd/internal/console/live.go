package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/console/view"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	recentMessages = 50
	recentLooked   = 1000 // messages among which those of some ids are looked for
	recentWithin   = 3 * time.Second
)

type liveData struct {
	Kind       live.Kind
	Query      string // of the kind; empty for expiry events
	Collection string
	IDs        string // what the ids begin with
	Error      string // what is wrong with the collection
	Missing    string // why the last messages cannot be shown
	Messages   []message
	Stream     string // the path of the event stream
	After      uint64 // the last sequence that the page has considered
	Kinds      []link
	Figures    Figures
}

// message is an expiry event, a due message, a warning or a rejection, for people.
type message struct {
	Seq        uint64
	Event      wire.Event      // of a due message or a warning: what it shares with an event
	Due        *wire.Due       // nil of others
	Warning    *wire.Expiring  // nil of others
	Rejection  *live.Rejection // nil of others
	Collection string
	ID         string
	Href       string // of the page of the message
	Document   string // of the document that it is about, as it is now; empty if it is about none
	Text       string // the beginning of its document
	Whole      text   // all of it; only on the page of the message
}

// kinds are what a request calls the kinds of messages; others are expiry events.
var kinds = map[string]live.Kind{"due": live.Due, "warnings": live.Expiring, "rejections": live.Rejected}

// topic reads what the request is about. A token that is not for all collections must name one.
func (v *visit) topic() (t live.Request, err error) {
	query := v.r.URL.Query()
	t = live.Request{Kind: cmp.Or(kinds[query.Get("kind")], live.Expired), Collection: strings.TrimSpace(query.Get("collection"))}
	if t.Collection == "" && v.grant.All() {
		return t, nil
	}
	if t.Collection == "" {
		return t, access.BadRequest("this token is not for all collections: name one")
	}
	if err := wire.CheckCollection(t.Collection); err != nil {
		return t, access.BadRequest("%s", err)
	}
	return t, v.mayUse(t.Collection)
}

func livePage(v *visit) error {
	topic, err := v.topic()
	data := liveData{Figures: v.c.figures.Now(), Kind: topic.Kind, Collection: topic.Collection, IDs: v.r.URL.Query().Get("ids")}
	here := root + "live"
	for _, k := range []struct{ text, query string }{{"Expired", ""}, {"Due", "due"}, {"Expiring", "warnings"}, {"Rejected", "rejections"}} {
		is := cmp.Or(kinds[k.query], live.Expired) == topic.Kind
		if is {
			data.Query = k.query
		}
		data.Kinds = append(data.Kinds, link{k.text, with(here, "collection", topic.Collection, "ids", data.IDs, "kind", k.query), is})
	}
	status := http.StatusOK
	if err != nil {
		data.Error = err.Error()
		if status = statusOf(err); topic.Collection == "" {
			status = http.StatusOK // nothing is wrong with the request yet
		}
	} else {
		if v.r.Header.Get("Lapse-Refresh") == "" { // the script does not refresh them
			v.recent(topic, &data)
		}
		data.Stream = with(here+"/stream", "collection", topic.Collection, "kind", data.Query)
	}
	return v.show(status, "live", v.page("Live", "live", data))
}

// recent reads the last messages of a topic.
func (v *visit) recent(topic live.Request, data *liveData) {
	ctx, cancel := context.WithTimeout(v.r.Context(), recentWithin)
	defer cancel()
	look := recentMessages
	if data.IDs != "" {
		look = recentLooked
	}
	found, last, err := live.Recent(ctx, v.c.opts.Events, topic, look, v.hold, func(from live.Message) (message, bool) {
		m := v.message(from)
		return m.withoutBody(), strings.HasPrefix(m.ID, data.IDs)
	})
	if err != nil {
		data.Missing = err.Error()
		return
	}
	data.Messages, data.After = found[:min(len(found), recentMessages)], last
}

// withoutBody is the message with the beginning of its document alone: of many messages, a page shows no more.
func (m message) withoutBody() message {
	m.Text, m.Event.Document = strings.Clone(m.Text), nil
	if m.Due != nil {
		m.Due.Document = nil
	}
	if m.Warning != nil {
		m.Warning.Document = nil
	}
	if m.Rejection != nil {
		m.Rejection.Body = ""
	}
	return m
}

// message reads a message for people, with the beginning of its document.
func (v *visit) message(from live.Message) message {
	m := message{Seq: from.Seq, Collection: from.Collection, Href: root + "live/messages/" + strconv.FormatUint(from.Seq, 10)}
	if from.Kind == live.Due {
		m.Due = &wire.Due{}
		_ = json.Unmarshal(from.Data, m.Due)
	}
	if from.Kind == live.Expiring {
		m.Warning = &wire.Expiring{}
		_ = json.Unmarshal(from.Data, m.Warning)
	}
	if from.Kind != live.Rejected {
		_ = json.Unmarshal(from.Data, &m.Event) // lapse has written it
		m.ID, m.Text = m.Event.ID, snippet(m.Event.Document)
	} else {
		m.Rejection = &live.Rejection{}
		_ = json.Unmarshal(from.Data, m.Rejection)
		m.Text = snippet([]byte(m.Rejection.Body))
		if s := v.c.opts.Prefix.Log(0, 1).ParseSubject(m.Rejection.Subject); s.Kind == wire.SubjectWrite {
			m.ID, _ = wire.UnescapeID(s.Token)
		}
	}
	if m.ID != "" {
		m.Document = documentHref(m.Collection, m.ID)
	}
	return m
}

// messagePage shows one message, with all of its document.
func messagePage(v *visit) error {
	seq, err := strconv.ParseUint(v.r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		return access.NewProblem(http.StatusNotFound, access.NoSuchRoute, "There is no page at %s.", wire.Quote(v.r.URL.Path))
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), recentWithin)
	defer cancel()
	found, ok, err := v.c.opts.Events.Find(ctx, seq, v.hold)
	var full *access.Problem
	switch {
	case errors.As(err, &full):
		return full
	case err != nil:
		return access.NewProblem(http.StatusServiceUnavailable, access.Unavailable, "the stream of events cannot be read: %s", err)
	case !ok || !v.grant.Covers(found.Collection): // its name is not for everybody
		return access.NewProblem(http.StatusNotFound, access.NotFound, "The stream of events has no event, message, warning or rejection %d, or no longer.", seq)
	}
	m := v.message(found)
	title := "Expired: " + view.Visible(m.ID)
	if m.Due != nil {
		title = "Due: " + view.Visible(m.ID)
	}
	if m.Warning != nil {
		title = "Expiring: " + view.Visible(m.ID)
	}
	m.Whole = newText(m.Event.Document, true)
	if m.Rejection != nil {
		title, m.Whole = fmt.Sprintf("Rejected message %d", seq), newText([]byte(m.Rejection.Body), false)
	}
	return v.show(http.StatusOK, "message", v.page(title, "live", m, view.Crumb{Text: "Live", Href: liveHref(m.Collection)}))
}

// liveHref is the path of the live page of a collection; of all collections if it is empty.
func liveHref(collection string) string { return with(root+"live", "collection", collection) }

// liveStream sends what is live: it is the stream of the API.
func liveStream(v *visit) error {
	topic, err := v.topic()
	if err != nil {
		return err
	}
	req := v.r.Clone(v.r.Context())
	query, asked := v.r.URL.Query(), url.Values{}
	after := query.Get("after")
	req.URL = &url.URL{Path: "/v1/rejections"}
	if topic.Kind != live.Rejected {
		req.URL.Path = "/v1/events"
		asked.Set("type", string(topic.Kind))
	}
	if topic.Collection != "" {
		asked.Set("collection", topic.Collection)
	}
	req.URL.RawQuery = asked.Encode()
	req.Header = http.Header{}
	v.api.Header(req.Header)
	// After a reconnect by the browser, the id of the last message counts.
	if last := v.r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	if _, err := strconv.ParseUint(after, 10, 64); err == nil {
		req.Header.Set("Last-Event-ID", after)
	}
	v.w.Header().Del("Cache-Control")
	v.c.opts.API.ServeHTTP(v.w, req)
	return nil
}
