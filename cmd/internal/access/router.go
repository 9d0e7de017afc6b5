package access

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Router finds the handler of an HTTP request by its method and path. The API and the console share
// one. The zero value has no routes.
//
// [http.ServeMux] cleans a path that has . or .. or an empty segment, and redirects: a client then
// repeats its DELETE on another path. A Router changes no path and redirects nowhere. It splits
// the path at each / as the client sent it, and then decodes each segment once. So %2E%2E and
// %2F are names like any other. A segment that was sent as . or .. or as nothing is no name: where
// a route has a name there, the answer is 400.
type Router struct{ root node }

// Refuse answers a request that no route takes. The problem says why, and Allow is set.
type Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)

// node is the end of some segments.
type node struct {
	next    map[string]*node // by the next segment
	named   *node            // after a segment that is a name
	name    string           // of that segment in a route
	methods map[string]http.Handler
	refuse  Refuse // requests for this path and all paths below it
}

// NewRouter makes a router without routes.
func NewRouter() *Router { return &Router{} }

// Handle adds a route. A segment {name} of the pattern stands for any segment, whose text
// [http.Request.PathValue] then returns. Any other segment stands for itself, and comes first;
// an empty one at the end stands for a path that ends with /. A route for GET takes HEAD too.
func (r *Router) Handle(method, pattern string, h http.Handler) {
	n := r.root.add(pattern)
	if n.methods == nil {
		n.methods = make(map[string]http.Handler)
	}
	if n.methods[method] != nil {
		panic("two routes for " + method + " " + pattern)
	}
	n.methods[method] = h
}

// Refuse sets what answers the requests for a path, and for the paths below it, that no route
// takes. The longest path counts; "" is all paths.
func (r *Router) Refuse(path string, refuse Refuse) { r.root.add(path).refuse = refuse }

// add returns the node of a pattern.
func (n *node) add(pattern string) *node {
	for _, segment := range split(pattern) {
		name, ok := strings.CutPrefix(segment, "{")
		if !ok {
			if n.next == nil {
				n.next = make(map[string]*node)
			}
			if n.next[segment] == nil {
				n.next[segment] = &node{}
			}
			n = n.next[segment]
			continue
		}
		name = strings.TrimSuffix(name, "}")
		if n.named == nil {
			n.named, n.name = &node{}, name
		}
		if n.name != name {
			panic("the routes call the same segment " + n.name + " and " + name)
		}
		n = n.named
	}
	return n
}

// split returns the segments of a path, each after a /.
func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(path, "/"), "/")
}

// ServeHTTP implements [http.Handler].
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// Whatever a document holds, no browser takes it for a page.
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h, refuse, p := r.find(req)
	if p == nil {
		h.ServeHTTP(w, req)
		return
	}
	if p.Allow != "" {
		w.Header().Set("Allow", p.Allow)
	}
	if refuse == nil {
		p.Write(w)
		return
	}
	refuse(w, req, p)
}

// find returns the handler of a request, and sets the names in its path; or a problem, and what
// answers with it.
func (r *Router) find(req *http.Request) (h http.Handler, refuse Refuse, p *Problem) {
	path := sent(req.URL)
	n, refuse := &r.root, r.root.refuse
	if !strings.HasPrefix(path, "/") { // such as *
		return nil, refuse, notFound(path)
	}
	var misnamed *Problem
	for _, segment := range split(path) {
		text, err := url.PathUnescape(segment)
		next := n.next[text]
		if err != nil || next == nil && n.named == nil {
			return nil, refuse, notFound(path)
		}
		if next == nil {
			next = n.named
			req.SetPathValue(n.name, text)
			if misnamed == nil {
				misnamed = checkName(path, segment)
			}
		}
		if n = next; n.refuse != nil {
			refuse = n.refuse
		}
	}
	h = n.methods[req.Method]
	if h == nil && req.Method == http.MethodHead {
		h = n.methods[http.MethodGet]
	}
	switch {
	case len(n.methods) == 0:
		return nil, refuse, notFound(path)
	case h == nil:
		allow := n.allow()
		p = NewProblem(http.StatusMethodNotAllowed, MethodNotAllowed,
			"%s cannot be used here: use %s", wire.Quote(req.Method), allow)
		p.Allow = allow
		return nil, refuse, p
	}
	return h, refuse, misnamed
}

// sent is the path as the client sent it. EscapedPath alone would not do: of a path with a
// character that should be escaped, it makes a new one, in which the / of %2F is like any other.
func sent(u *url.URL) string {
	switch {
	case u.RawPath != "":
		return u.RawPath
	case u.Path == "":
		return "/"
	}
	return u.EscapedPath()
}

// checkName refuses a segment that is no name; it is not decoded.
func checkName(path, segment string) *Problem {
	switch segment {
	case "":
		return BadRequest("the path %s has nothing between two / or at its end, where a name belongs: "+
			"write the name, and each / in it as %%2F", wire.Quote(path))
	case ".", "..":
		return BadRequest("the path %s has %s where a name belongs, and many programs take that for a folder: "+
			"if it is the name, write it as %s", wire.Quote(path), segment, strings.ReplaceAll(segment, ".", "%2E"))
	}
	return nil
}

// notFound is the problem of a path that no route has.
func notFound(path string) *Problem {
	return NewProblem(http.StatusNotFound, NoSuchRoute, "there is nothing at %s", wire.Quote(path))
}

// allow lists the methods of a path.
func (n *node) allow() string {
	var methods []string
	for method := range n.methods {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}
