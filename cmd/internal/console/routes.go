package console

import "net/url"

// route is one page or action. Without a token only open routes answer.
type route struct {
	method, path string
	handle       func(*visit) error
	open         bool
}

const (
	root           = "/console/"
	collectionPath = root + "collections/{collection}"
	documentsPath  = collectionPath + "/documents/"
	signInPath     = root + "sign-in"
	streamPath     = root + "live/stream"
)

var routes = []route{
	{method: "GET", path: "/", handle: overview},
	{method: "GET", path: root + "collections/", handle: goToCollection},
	{method: "POST", path: root + "examples", handle: makeExamples},
	{method: "GET", path: collectionPath, handle: collection},
	{method: "GET", path: collectionPath + "/configure", handle: configure},
	{method: "POST", path: collectionPath + "/configure", handle: saveConfiguration},
	{method: "POST", path: collectionPath + "/drop", handle: drop},
	{method: "GET", path: collectionPath + "/new", handle: newDocument},
	{method: "POST", path: collectionPath + "/new", handle: createDocument},
	{method: "GET", path: documentsPath, handle: document},
	{method: "POST", path: documentsPath, handle: changeDocument},
	{method: "GET", path: documentsPath + "{id}", handle: document},
	{method: "POST", path: documentsPath + "{id}", handle: changeDocument},
	{method: "GET", path: root + "live", handle: livePage},
	{method: "GET", path: streamPath, handle: liveStream},
	{method: "GET", path: root + "live/messages/{seq}", handle: messagePage},
	{method: "GET", path: root + "consumers", handle: consumersPage},
	{method: "POST", path: root + "consumers/resend", handle: resendLetters},
	{method: "GET", path: root + "system", handle: systemPage},
	{method: "GET", path: signInPath, handle: signInPage, open: true},
	{method: "POST", path: signInPath, handle: signIn, open: true},
	{method: "POST", path: root + "sign-out", handle: signOut, open: true},
	{method: "GET", path: root + "assets/{name}", handle: asset, open: true},
}

// collectionHref is the path of a collection's page, or of one below it.
func collectionHref(collection string, below ...string) string {
	href := root + "collections/" + url.PathEscape(collection)
	for _, b := range below {
		href += "/" + b
	}
	return href
}

// documentHref is the path of a document. A browser takes the ids . and .. for folders, also if
// they are escaped, so they are in the query.
func documentHref(collection, id string) string {
	if id == "." || id == ".." {
		return collectionHref(collection, "documents", "?id="+url.QueryEscape(id))
	}
	return collectionHref(collection, "documents", url.PathEscape(id))
}
