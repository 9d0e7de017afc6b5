package httpapi

import "net/http"

// kind is what a route does, for the limits and the tokens.
type kind int

const (
	reads kind = iota
	writes
	imports // many writes in one request
	follows // a stream of events
)

// route is one operation of the API.
type route struct {
	method, path string
	kind         kind
	handle       func(*API, http.ResponseWriter, *request) error
}

// hasEtag reports whether the answers have an ETag: those with one document, or one configuration.
func (r route) hasEtag() bool { return r.path == documentPath || r.path == collectionPath }

const (
	collectionPath = "/v1/collections/{collection}"
	queryPath      = collectionPath + "/query"
	documentsPath  = collectionPath + "/documents"
	documentPath   = documentsPath + "/{id}"
)

// routes lists every route; openapi.json describes each of them.
var routes = []route{
	{"GET", "/v1/collections", reads, listCollections},
	{"GET", collectionPath, reads, getConfig},
	{"PUT", collectionPath, writes, putConfig},
	{"PATCH", collectionPath, writes, patchConfig},
	{"DELETE", collectionPath, writes, dropCollection},
	{"GET", collectionPath + "/count", reads, countDocuments},
	{"GET", collectionPath + "/forecast", reads, forecastDocuments},
	{"POST", queryPath, reads, queryDocuments},
	{"GET", documentsPath, reads, listDocuments},
	{"POST", documentsPath, imports, importDocuments},
	{"GET", documentPath, reads, getDocument},
	{"PUT", documentPath, writes, putDocument},
	{"PATCH", documentPath, writes, patchDocument},
	{"DELETE", documentPath, writes, deleteDocument},
	{"POST", documentPath + "/touch", writes, touchDocument},
	{"GET", "/v1/events", follows, followEvents},
	{"GET", "/v1/changes", follows, followChanges},
	{"GET", "/v1/rejections", follows, followRejections},
}

// otherRoute is what the metrics call a path that no route has.
const otherRoute = "other"
