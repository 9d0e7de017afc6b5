package console

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// failure is the data of the page for what failed.
type failure struct {
	*access.Problem
	Advice string
	Gone   bool // the page is that of a document which is not there
	Above  *Crumb
	Again  string // the path of the page that failed; empty if it is no use
	Events string // the path of the live page
}

// advice is what a person can do about a problem, by its code.
var advice = map[string]string{
	access.Invalid: "Go back, change what is named above, and send it again. Nothing was changed.",
	access.NotAllowed: "Sign out, and sign in with a token that allows it. The file of tokens says what each " +
		"may do. Nothing was changed.",
	access.CrossOrigin: "Open the console at its own address, and send the form from there. Behind a proxy, let " +
		"it pass on the header Host. Nothing was changed.",
	access.NoSuchRoute:      "Look at the address, or begin at the overview.",
	access.MethodNotAllowed: "Begin at the overview.",
	access.Conflict:         "Look at what is there now, and decide again. Nothing was changed.",
	access.PreconditionFailed: "Somebody else has changed it since you looked. Look at what is there now, and decide " +
		"again. Nothing was changed.",
	access.KeyUsed: "Look at what is there now, and decide again. Nothing was changed.",
	access.TooLarge: "Make it smaller, send it over the API, or raise max_payload of the NATS server. " +
		"Nothing was changed.",
	access.WrongHost: "Open the console at 127.0.0.1 or localhost.",
	access.OtherRegion: "Change it in the console at that address. Here you see it a moment later. Nothing was " +
		"changed.",
	noForwarder: "Start lapse forward under this name and try again, or run it once with --resend. " +
		"Nothing was changed.",
	access.Internal: "The log of lapse has more about it. Try again; if it stays, look at what is unhealthy " +
		"on the overview.",
	access.Unavailable: "The overview says what is unhealthy. lapse goes on by itself once the reason is gone: " +
		"then reload this page.",
	access.OutcomeUnknown: "The change may have taken effect, or may still do so. Look at what is there now, or " +
		"reload this page within 2 minutes (--duplicate-window): it counts once.",
}

// fail answers with a page that says what failed, and what to do.
func (v *visit) fail(err error) {
	p, ok := errors.AsType[*access.Problem](err)
	if !ok {
		if v.r.Context().Err() == nil { // otherwise the browser has left
			v.c.opts.Logger.Error("console request failed", slog.String("path", v.r.URL.Path), slog.Any("error", err))
		}
		p = access.NewProblem(http.StatusInternalServerError, access.Internal, "%s", err)
	}
	data := failure{Problem: p, Advice: advice[p.Code]}
	if strings.HasPrefix(p.Code, access.TooMany) {
		data.Advice = "Reload this page in a few seconds. Nothing was changed."
	}
	data.Events = liveHref(v.collection)
	if p.Status >= http.StatusInternalServerError && v.r.Method != http.MethodPost {
		data.Again = v.r.URL.RequestURI()
	}
	page := v.page(p.Title, "", &data)
	if v.collection != "" && p.Status != http.StatusBadRequest && v.grant.Covers(v.collection) {
		page.Crumbs = v.crumbs()
		if data.Above = &page.Crumbs[1]; data.Above.Href == v.r.URL.Path {
			data.Above = nil
		}
		data.Gone = p.Code == access.NotFound && v.id != ""
	}
	if p.Status == http.StatusServiceUnavailable {
		v.w.Header().Set("Retry-After", "1")
	}
	if err := v.show(p.Status, "failure", page); err != nil {
		http.Error(v.w, err.Error(), http.StatusInternalServerError)
	}
}
