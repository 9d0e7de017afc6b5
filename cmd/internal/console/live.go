package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
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
	NoChanges  bool   // the collection does not publish its changes
	Missing    string // why the last messages cannot be shown
	Messages   []message
	Stream     string // the path of the event stream
	After      uint64 // the last sequence that the page has considered
	Kinds      []link
	Figures    Figures
}

// message is an expiry event, a due message, a warning, a rejection or a change, for people.
type message struct {
	Seq        uint64
	At         wire.Time       // when it happened
	What       string          // created, updated, deleted, dropped, expired or due, among changes
	Event      wire.Event      // of a due message or a warning: what it shares with an event
	Due        *wire.Due       // nil of others
	Warning    *wire.Expiring  // nil of others
	Rejection  *live.Rejection // nil of others
	Change     *wire.Change    // nil of others
	Collection string
	ID         string
	Href       string // of the page of the message
	Document   string // of the document that it is about, as it is now; empty if it is about none
	Text       string // the beginning of its document
	Whole      text   // all of it; only on the page of the message
}

// kinds are what a request calls the kinds of messages; others are expiry events.
var kinds = map[string]live.Kind{"due": live.Due, "warnings": live.Expiring, "rejections": live.Rejected,
	"changes": live.Changed}

// topic reads what the request is about. A token that is not for all collections must name one.
func (v *visit) topic() (t live.Request, err error) {
	query := v.r.URL.Query()
	t = live.Request{Kind: cmp.Or(kinds[query.Get("kind")], live.Expired),
		Collection: strings.TrimSpace(query.Get("collection"))}
	if t.Collection == "" && t.Kind == live.Changed {
		return t, access.BadRequest("changes are those of a collection: name one that publishes its changes")
	}
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
	data := liveData{Figures: v.c.figures.Now(), Kind: topic.Kind, Collection: topic.Collection,
		IDs: v.r.URL.Query().Get("ids")}
	here := root + "live"
	for _, k := range []struct{ text, query string }{{"Expired", ""}, {"Due", "due"}, {"Expiring", "warnings"},
		{"Rejected", "rejections"}, {"Changed", "changes"}} {
		is := cmp.Or(kinds[k.query], live.Expired) == topic.Kind
		if is {
			data.Query = k.query
		}
		data.Kinds = append(data.Kinds, link{k.text, with(here, "collection", topic.Collection, "ids", data.IDs, "kind",
			k.query), is})
	}
	status := http.StatusOK
	if err != nil {
		data.Error = err.Error()
		if status = problemOf(err).Status; topic.Collection == "" {
			status = http.StatusOK // nothing is wrong with the request yet
		}
	} else if data.NoChanges, err = v.noChanges(topic); err != nil {
		return err
	} else if !data.NoChanges {
		if v.r.Header.Get("Lapse-Refresh") == "" { // the script does not refresh them
			v.recent(topic, &data)
		}
		data.Stream = with(here+"/stream", "collection", topic.Collection, "kind", data.Query)
	}
	return v.show(status, "live", v.page("Live", "live", data))
}

// noChanges reports whether a request is about the changes of a collection that does not publish them.
func (v *visit) noChanges(topic live.Request) (bool, error) {
	if topic.Kind != live.Changed {
		return false, nil
	}
	config, _, err := v.config(topic.Collection)
	return !config.Changes, err
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
	if m.Change != nil {
		m.Change.Document = nil
	}
	return m
}

// message reads a message for people, with the beginning of its document.
func (v *visit) message(from live.Message) message {
	m := message{Seq: from.Seq, What: from.What(), Collection: from.Collection}
	m.Href = root + "live/messages/" + strconv.FormatUint(from.Seq, 10)
	n, at := from.Notification() // lapse has written it, so it is valid
	switch {
	case n.Rejected != nil:
		m.Rejection, m.At, m.Text = &live.Rejection{Rejection: n.Rejected, At: at}, at, snippet([]byte(n.Rejected.Body))
		if s := v.c.opts.Prefix.Log(0, 1).ParseSubject(m.Rejection.Subject); s.Kind == wire.SubjectWrite {
			m.ID, _ = wire.UnescapeID(s.Token)
		}
	case n.Changed != nil:
		m.Change = &n.Changed.Change
		m.read(m.Change.ID, m.Change.Ts, m.Change.Document, m.Change.Omitted)
		if m.Change.Unchanged {
			m.Text = "(as before)"
		}
	case n.Due != nil:
		m.Due = n.Due
		m.Event = wire.Event{Document: n.Due.Document, Omitted: n.Due.Omitted, Etag: n.Due.Etag}
		m.read(n.Due.ID, n.Due.DueAt, n.Due.Document, n.Due.Omitted)
	case n.Expiring != nil:
		w := n.Expiring
		m.Warning = w
		m.Event = wire.Event{Document: w.Document, Omitted: w.Omitted, Etag: w.Etag, Ts: w.Ts, TTL: w.TTL}
		m.read(w.ID, w.At(), w.Document, w.Omitted)
	case n.Expired != nil:
		m.Event = *n.Expired
		m.read(m.Event.ID, m.Event.ExpiredAt, m.Event.Document, m.Event.Omitted)
	}
	if m.ID != "" {
		m.Document = documentHref(m.Collection, m.ID)
	}
	return m
}

// read reads what all messages about a document have.
func (m *message) read(id string, at wire.Time, document []byte, omitted bool) {
	m.ID, m.At, m.Text = id, at, snippet(document)
	if omitted {
		m.Text = "(left out)"
	}
}

// Title is the heading of the page of a message.
func (m message) Title() string {
	name := visible(m.ID)
	switch {
	case m.Rejection != nil:
		return fmt.Sprintf("Rejected message %d", m.Seq)
	case m.Warning != nil:
		return "Expiring: " + name
	case m.Change != nil && m.ID == "":
		return "Dropped: collection " + m.Collection
	}
	return strings.ToUpper(m.What[:1]) + m.What[1:] + ": " + name
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
		return access.NewProblem(http.StatusServiceUnavailable, access.Unavailable,
			"the stream of events cannot be read: %s", err)
	case !ok || !v.grant.Covers(found.Collection): // its name is not for everybody
		return access.NewProblem(http.StatusNotFound, access.NotFound, "The stream of events has no event, message, "+
			"warning, rejection or change %d, or no longer.", seq)
	}
	m := v.message(found)
	switch {
	case m.Rejection != nil:
		m.Whole = newText([]byte(m.Rejection.Body), false)
	case m.Change != nil:
		m.Whole = newText(m.Change.Document, true)
	default:
		m.Whole = newText(m.Event.Document, true)
	}
	return v.show(http.StatusOK, "message", v.page(m.Title(), "live", m, Crumb{Text: "Live",
		Href: liveHref(m.Collection)}))
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
	switch topic.Kind {
	case live.Rejected:
		req.URL = &url.URL{Path: "/v1/rejections"}
	case live.Changed:
		req.URL = &url.URL{Path: "/v1/changes"}
	default:
		req.URL = &url.URL{Path: "/v1/events"}
		asked.Set("type", string(topic.Kind))
	}
	if topic.Collection != "" {
		asked.Set("collection", topic.Collection)
	}
	req.URL.RawQuery = asked.Encode()
	req.Header = http.Header{}
	v.authorize(req.Header)
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
