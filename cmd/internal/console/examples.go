package console

import (
	"fmt"
	"net/http"
	"net/url"
)

// The examples of an empty lapse: a collection whose documents expire while one looks.
const (
	exampleCollection = "examples"
	exampleTTL        = 600 // seconds
)

// exampleDocuments have a ttl of their own, or that of the collection.
var exampleDocuments = []struct{ id, body string }{
	{"coffee", `{"item":"coffee","ttl":30}`},
	{"tea", `{"item":"tea","ttl":90}`},
	{"cake", `{"item":"cake","ttl":300}`},
	{"bread", `{"item":"bread"}`},
	{"salt", `{"item":"salt","ttl":-1}`},
}

// firstWrite is a command that writes a document over the API as the browser reaches it.
func (v *visit) firstWrite() string {
	token := ""
	if v.c.opts.Tokens != nil {
		token = `--header "Authorization: Bearer $TOKEN" `
	}
	scheme := "http"
	if v.c.opts.Proxies.HTTPS(v.r) {
		scheme = "https"
	}
	at := url.URL{Scheme: scheme, Host: v.r.Host, Path: "/v1/collections/" + exampleCollection}
	return fmt.Sprintf("curl %s--request PATCH --header 'Content-Type: application/merge-patch+json' "+
		"--data '{\"defaultTtl\": %d}' %s\n", token, exampleTTL, at.String()) +
		fmt.Sprintf("curl %s--request PUT --json '{\"item\": \"tea\", \"ttl\": 90}' %s/documents/tea", token, at.String())
}

// makeExamples writes the examples. It changes nothing that is there already.
func makeExamples(v *visit) error {
	config, _, err := v.config(exampleCollection)
	if err != nil {
		return err
	}
	if config.Etag == 0 {
		body := fmt.Sprintf(`{"defaultTtl":%d}`, exampleTTL)
		if _, err := v.write(http.MethodPut, apiCollectionPath(exampleCollection), []byte(body)); err != nil {
			return err
		}
	}
	for _, d := range exampleDocuments {
		path := apiDocumentPath(exampleCollection, d.id)
		_, err := v.write(http.MethodPut, path, []byte(d.body), "If-None-Match", "*")
		if err != nil && problemOf(err).Status != http.StatusPreconditionFailed {
			return err
		}
	}
	return v.redirect(with(collectionHref(exampleCollection), "done", "examples"))
}
