package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/wire"
)

// perPage is how many collections or documents a page shows.
const perPage = 50

type overviewData struct {
	Role        string
	Problems    health.Problems
	All         bool // the token is for all collections, as the figures are
	Figures     Figures
	History     []series
	Process     string
	Collections []wire.Collection
	Next        string // the path of the next page; empty on the last
	First       bool
	Missing     string // why the collections cannot be listed
	Command     string // that writes a first document
	Examples    bool   // may be made
	Once        string
}

func overview(v *visit) error {
	role, problems := v.c.opts.Ready()
	role = strings.TrimPrefix(strings.TrimPrefix(role, "ready"), ": ") // the head of the page says so
	data := overviewData{Role: role, All: v.grant.All(), Figures: v.c.figures.Now(),
		History: v.c.figures.history(time.Now()), Process: processName(), Problems: problems}
	first, _ := v.first()
	data.Command, data.Examples, data.Once = v.firstWrite(), first == "" && v.grant.Write &&
		v.grant.Covers(exampleCollection), once()
	data.First = v.r.URL.Query().Get("after") == ""
	if err := v.collections(&data); err != nil {
		if s := problemOf(err).Status; s == http.StatusBadRequest || s == 0 {
			return err
		}
		data.Missing = err.Error() // the rest of the page tells what is wrong
	}
	return v.show(http.StatusOK, "overview", v.page("Overview", "overview", data))
}

// collections reads a page of the collections for which the token is.
func (v *visit) collections(data *overviewData) error {
	after := v.r.URL.Query().Get("after")
	if !v.grant.All() {
		return v.grantedCollections(data, after)
	}
	var page wire.CollectionsReply
	if err := v.read("/v1/collections", &page, "limit", strconv.Itoa(perPage), "continuation", after); err != nil {
		return err
	}
	data.Collections = page.Collections
	if page.Continuation != "" {
		data.Next = with("/", "after", page.Continuation)
	}
	return nil
}

// grantedCollections reads the collections that the token names: the pages of all collections
// could have none of these.
func (v *visit) grantedCollections(data *overviewData, after string) error {
	names := slices.Compact(slices.Sorted(slices.Values(v.grant.Collections)))
	from, found := slices.BinarySearch(names, after)
	if found {
		from++
	}
	some := names[from:min(from+perPage, len(names))]
	for _, name := range some {
		c := wire.Collection{Name: name}
		config, _, err := v.config(name)
		if err != nil {
			return err
		}
		c.DefaultTTL, c.IndexingMode, c.Paused, c.Etag = config.DefaultTTL, config.IndexingMode, config.Paused, config.Etag
		var count wire.CountReply
		if err := v.readAny(apiCollectionPath(name, "count"), &count); err != nil {
			return err
		}
		c.Live, c.Expired = count.Live, count.Expired
		data.Collections = append(data.Collections, c)
	}
	if from+perPage < len(names) {
		data.Next = with("/", "after", some[len(some)-1])
	}
	return nil
}

// goToCollection leads to the collection whose name was typed.
func goToCollection(v *visit) error {
	name := strings.TrimSpace(v.r.URL.Query().Get("name"))
	if name == "" {
		return v.redirect("/")
	}
	return v.redirect(collectionHref(name))
}
