package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// editData is the data of the form for a document, new or not.
type editData struct {
	Collection string
	ID         string
	New        bool
	Href       string // where the form goes
	Back       string
	Etag       string // of the version that is edited
	Body       string
	Clock      clockForm
	IDError    string
	BodyError  string
	BadJSON    *badJSON // where, if it is no JSON
	Once       string
}

// conflictData is the data of the page on which both versions are.
type conflictData struct {
	Collection, ID string
	Href           string
	Action         string // touch, delete or replace
	Mine           string // the version that was sent; only of replace
	MineEtag       string // of the version that it came from; empty of a new document
	Clock          clockForm
	Theirs         *Document
	Text           text // of theirs
	Once           string
}

func (v *visit) showEdit(status int, data editData) error {
	data.Collection, data.Once = v.collection, once()
	title, crumbs := "New document", v.crumbs()
	data.Href = collectionHref(v.collection, "new")
	data.Back = collectionHref(v.collection)
	if !data.New {
		data.ID, data.Href = v.id, documentHref(v.collection, v.id)
		data.Back, title = data.Href, "Edit "+visible(v.id)
	}
	return v.show(status, "edit", v.page(title, "overview", data, crumbs...))
}

func newDocument(v *visit) error {
	if err := wire.CheckCollection(v.collection); err != nil {
		return access.BadRequest("%s", err)
	}
	if err := v.mayUse(v.collection); err != nil {
		return err
	}
	if !v.grant.Write {
		return refused()
	}
	return v.showEdit(http.StatusOK, editData{New: true, ID: v.r.URL.Query().Get("id"), Body: "{\n}\n"})
}

// checkID refuses an id that is not valid.
func checkID(id string) error {
	if err := wire.CheckID(id); err != nil {
		return access.BadRequest("%s", err)
	}
	return nil
}

// typed is the document in the form. Browsers send each end of a line as two characters.
func (v *visit) typed() string { return strings.ReplaceAll(v.r.PostForm.Get("body"), "\r\n", "\n") }

func createDocument(v *visit) error {
	v.id = v.r.PostForm.Get("id")
	body := v.typed()
	form := editData{New: true, ID: v.id, Body: body, Clock: readClock(v.r.PostForm, time.Now())}
	if err := checkID(v.id); err != nil && v.grant.Write {
		form.IDError = err.Error()
	}
	if v.grant.Write && (form.IDError != "" || form.Clock.wrong()) {
		return v.showEdit(http.StatusBadRequest, form)
	}
	a, err := v.write(http.MethodPut, apiDocumentPath(v.collection, v.id), []byte(body),
		append(form.Clock.headers, "If-None-Match", "*")...)
	switch {
	case problemOf(err).Status == http.StatusPreconditionFailed:
		return v.showConflict(conflictData{Action: actionReplace, Mine: body, Clock: form.Clock})
	case badField(err) != "":
		form.BodyError, form.BadJSON = badField(err), findBadJSON(body)
		return v.showEdit(problemOf(err).Status, form)
	case err != nil:
		return err
	}
	return v.done(a, documentHref(v.collection, v.id), "created")
}

// What a form does with a document.
const (
	actionReplace = "replace"
	actionTouch   = "touch"
	actionDelete  = "delete"
)

func changeDocument(v *visit) error {
	etag := v.r.PostForm.Get("etag")
	match := quoted(etag)
	if match == "" {
		match = "*" // or it could overwrite what nobody has looked at
	}
	path := apiDocumentPath(v.collection, v.id)
	switch action := v.r.PostForm.Get("action"); action {
	case actionTouch:
		a, err := v.write(http.MethodPost, path+"/touch", nil, "If-Match", match)
		return v.changed(a, err, documentHref(v.collection, v.id), "touched", conflictData{Action: action})
	case actionDelete:
		a, err := v.write(http.MethodDelete, path, nil, "If-Match", match)
		return v.changed(a, err, collectionHref(v.collection), "deleted", conflictData{Action: action})
	case actionReplace:
		return v.replaceDocument(path, match, etag)
	default:
		return access.BadRequest("action %s is not known: use touch, replace or delete", wire.Quote(action))
	}
}

// changed answers after a write: with the next page, or with the conflict.
func (v *visit) changed(a *answer, err error, href, notice string, conflict conflictData) error {
	switch {
	case problemOf(err).Status == http.StatusPreconditionFailed:
		return v.showConflict(conflict)
	case err != nil:
		return err
	}
	return v.done(a, href, notice)
}

func (v *visit) replaceDocument(path, match, etag string) error {
	body, clock := v.typed(), readClock(v.r.PostForm, time.Now())
	if clock.wrong() && v.grant.Write {
		return v.showEdit(http.StatusBadRequest, editData{Etag: etag, Body: body, Clock: clock})
	}
	condition := []string{"If-Match", match}
	if v.r.PostForm.Get("create") != "" { // the version that was edited is gone
		condition = []string{"If-None-Match", "*"}
		if clock.Keep { // and so is its clock
			clock.headers = clock.headers[2:]
		}
	}
	a, err := v.write(http.MethodPut, path, []byte(body), append(clock.headers, condition...)...)
	if text := badField(err); text != "" {
		return v.showEdit(problemOf(err).Status, editData{Etag: etag, Body: body, Clock: clock, BodyError: text,
			BadJSON: findBadJSON(body)})
	}
	href := documentHref(v.collection, v.id)
	return v.changed(a, err, href, "saved", conflictData{Action: actionReplace, Mine: body, MineEtag: etag, Clock: clock})
}

// showConflict shows both versions. Theirs is missing if the document is gone.
func (v *visit) showConflict(data conflictData) error {
	doc, err := v.get()
	switch {
	case err == nil:
		data.Theirs, data.Text = doc, newText(doc.Body, false)
	case problemOf(err).Status != http.StatusNotFound || data.Action != actionReplace:
		return err
	}
	data.Collection, data.ID, data.Href, data.Once = v.collection, v.id, documentHref(v.collection, v.id), once()
	return v.show(http.StatusPreconditionFailed, "conflict", v.page("Conflict on "+visible(v.id), "overview", data,
		v.crumbs()...))
}

// clockForm is what a form says of the clock of a document, beside its body, and of its target.
type clockForm struct {
	Expires string // as it was typed: an instant, or a duration from now
	Keep    bool   // the TTL goes on counting from where it began
	Error   string // what is wrong with Expires
	Target  string // of the message that its expiry delivers
	// TargetError is what is wrong with Target.
	TargetError string
	headers     []string
}

// clockOf is the form for a document that is there. A message keeps its target, and its time unless
// that is its ttl, or to save it would end it.
func clockOf(doc *Document) clockForm {
	c := clockForm{Target: doc.Target}
	var members map[string]*json.RawMessage // nil of a null
	if c.Target != "" && doc.ExpiresAt != nil && json.Unmarshal(doc.Body, &members) == nil && members["ttl"] == nil {
		c.Expires = doc.ExpiresAt.String()
	}
	return c
}

func (c clockForm) wrong() bool { return c.Error != "" || c.TargetError != "" }

func readClock(form url.Values, now time.Time) clockForm {
	c := clockForm{Expires: strings.TrimSpace(form.Get("expires")), Keep: form.Get("clock") == wire.ClockKeep,
		Target: strings.TrimSpace(form.Get("target"))}
	if c.Keep {
		c.headers = []string{wire.HeaderClock, wire.ClockKeep}
	}
	if c.Target != "" {
		if err := wire.CheckTarget(c.Target); err != nil {
			c.TargetError = err.Error()
		}
		c.headers = append(c.headers, wire.HeaderTarget, c.Target)
	}
	if c.Expires == "" {
		return c
	}
	at := c.Expires
	if in, err := wire.ParseDuration(at); err == nil && in > 0 && in <= ttlrules.MaxSeconds*time.Second {
		at = now.Add(in).UTC().Format(time.RFC3339Nano)
	} else if _, err := wire.ParseInstant(at); err != nil {
		c.Error = wire.Quote(c.Expires) + " is not valid: use an instant such as 2030-01-31T18:00:00Z, or a duration from " +
			"now such as 90s, 2h or 7d"
	}
	c.headers = append(c.headers, wire.HeaderExpiresAt, at)
	return c
}
