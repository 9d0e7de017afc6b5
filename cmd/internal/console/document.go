package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed18712806/lapse/cmd/internal/console/gateway"
	"github.com/seed18712806/lapse/cmd/internal/console/view"
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
	Stored         *gateway.Document
	View           string
	Text           string
	Lossy          bool // the text shows marks for bytes that are not UTF-8
	Views          []link
	Edit           string // the path of the form
	Bytes          string // the path of the bytes as they are
	Events         string // the path of the live page of the collection
	DeleteError    string
	Typed          string // what was typed in place of the id
	Once           string
}

func document(v *visit) error {
	// An id is anything that is typed, so find a document by exactly that.
	doc, err := v.api.Get(v.collection, v.id)
	if err != nil {
		return err
	}
	h := v.w.Header()
	h.Set("ETag", gateway.Quoted(doc.Etag))
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
func (v *visit) showDocument(status int, doc *gateway.Document, deleteError string) error {
	href := documentHref(v.collection, v.id)
	data := documentData{
		Collection: v.collection, ID: v.id, Href: href, Stored: doc, View: viewPretty,
		Edit: gateway.With(href, "view", viewEdit), Bytes: gateway.With(href, "view", viewBytes), Events: liveHref(v.collection), DeleteError: deleteError, Typed: v.r.PostForm.Get("confirm"), Once: gateway.Once(),
	}
	if v.r.URL.Query().Get("view") == viewRaw {
		data.View = viewRaw
	}
	data.Views = []link{{"Pretty", href, data.View == viewPretty}, {"Raw", gateway.With(href, "view", viewRaw), data.View == viewRaw}}
	data.Lossy = !utf8.Valid(doc.Body)
	text := doc.Body
	if data.View == viewPretty {
		text = pretty(text)
	}
	data.Text = strings.ToValidUTF8(string(text), "�")
	return v.show(status, "document", v.page(view.Visible(v.id), "overview", data, v.crumbs()...))
}

// pretty indents a document.
func pretty(document []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return document
	}
	return b.Bytes()
}
