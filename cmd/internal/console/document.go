package console

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

// The ways to look at a document.
const (
	viewPretty = "pretty"
	viewRaw    = "raw"
	viewEdit   = "edit"
	viewBytes  = "bytes"
)

type documentData struct {
	Collection, ID string
	Href           string
	Stored         *stored
	View           string
	Text           string
	Lossy          bool // the text shows marks for bytes that are not UTF-8
	Views          []link
	Edit           string // the path of the form
	Bytes          string // the path of the bytes as they are
	DeleteError    string
	Once           string
}

// once is the beginning of the keys of a form.
func once() string { return rand.Text() }

func document(v *visit) error {
	// An id is anything that is typed, so find a document by exactly that.
	doc, err := v.get()
	if err != nil {
		return err
	}
	h := v.w.Header()
	h.Set("ETag", quoted(doc.Etag))
	if doc.ExpiresAt != nil {
		h.Set(wire.HeaderExpiresAt, doc.ExpiresAt.String())
	}
	if v.r.Method == http.MethodHead { // the script asks whether it is still there
		v.w.WriteHeader(http.StatusOK)
		return nil
	}
	switch v.r.URL.Query().Get("view") {
	case viewBytes:
		h.Set("Content-Type", "application/json")
		_, _ = v.w.Write(doc.Body)
		return nil
	case viewEdit:
		return v.showEdit(http.StatusOK, editData{Etag: doc.Etag, Body: string(doc.Body)})
	}
	return v.showDocument(http.StatusOK, doc, "")
}

// showDocument shows a document. deleteError is why the id that was typed to delete it was not
// right.
func (v *visit) showDocument(status int, doc *stored, deleteError string) error {
	href := documentHref(v.collection, v.id)
	data := documentData{
		Collection: v.collection, ID: v.id, Href: href, Stored: doc, View: viewPretty,
		Edit: with(href, "view", viewEdit), Bytes: with(href, "view", viewBytes), DeleteError: deleteError, Once: once(),
	}
	if v.r.URL.Query().Get("view") == viewRaw {
		data.View = viewRaw
	}
	data.Views = []link{{"Pretty", href, data.View == viewPretty}, {"Raw", with(href, "view", viewRaw), data.View == viewRaw}}
	data.Lossy = !utf8.Valid(doc.Body)
	text := doc.Body
	if data.View == viewPretty {
		text = pretty(text)
	}
	data.Text = strings.ToValidUTF8(string(text), "�")
	return v.show(status, "document", v.page(v.id, "overview", data, v.crumbs()...))
}

// pretty indents a document.
func pretty(document []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return document
	}
	return b.Bytes()
}
