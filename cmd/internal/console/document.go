package console

import (
	"net/http"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/output"
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
	Stored         *Document
	View           string
	Text           text
	Views          []link
	Edit           string // the path of the form
	Bytes          string // the path of the bytes as they are
	Events         string // the path of the live page of the collection
	Once           string
}

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
		return v.hold.Send(v.w, http.StatusOK, doc.Body)
	case viewEdit:
		if len(doc.Body) > mostEdited {
			return access.NewProblem(http.StatusRequestEntityTooLarge, access.TooLarge,
				"The document has %s, and a form here has at most %s: change it over the API.",
				output.Bytes(uint64(len(doc.Body))), output.Bytes(mostEdited))
		}
		return v.showEdit(http.StatusOK, editData{Etag: doc.Etag, Body: string(doc.Body), Clock: clockOf(doc)})
	}
	return v.showDocument(doc)
}

// showDocument shows a document.
func (v *visit) showDocument(doc *Document) error {
	href := documentHref(v.collection, v.id)
	data := documentData{
		Collection: v.collection, ID: v.id, Href: href, Stored: doc, View: viewPretty,
		Edit: with(href, "view", viewEdit), Bytes: with(href, "view", viewBytes), Events: liveHref(v.collection),
		Once: once(),
	}
	if v.r.URL.Query().Get("view") == viewRaw {
		data.View = viewRaw
	}
	data.Views = []link{
		{"Pretty", href, data.View == viewPretty},
		{"Raw", with(href, "view", viewRaw), data.View == viewRaw},
	}
	data.Text = newText(doc.Body, data.View == viewPretty)
	return v.show(http.StatusOK, "document", v.page(visible(v.id), "overview", data, v.crumbs()...))
}
