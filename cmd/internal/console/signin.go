package console

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// signedIn finds the grant of the person; false if a token is needed and the cookie has none that
// counts.
func (v *visit) signedIn() bool {
	tokens := v.c.opts.Tokens
	if tokens == nil {
		return true
	}
	v.grant = access.Grant{Collections: []string{}}
	token := sessionToken(v.r)
	grant, ok := tokens.Find(token)
	if ok {
		v.token, v.grant = token, grant
	}
	return ok
}

// mayUse refuses a collection for which the token is not.
func (v *visit) mayUse(collection string) error {
	if v.grant.Covers(collection) {
		return nil
	}
	return access.NewProblem(http.StatusForbidden, access.NotAllowed, "this token is not for collection %s", collection)
}

// signInData is the data of the page for signing in.
type signInData struct {
	Next  string
	Wrong bool // the token that was sent is not known
	Lost  bool // a form was sent without a token that counts
	Link  bool // a page of another site led here: then the browser sends no cookie
}

// askForToken leads to the page for signing in. Of a form that was sent it says that nothing was
// changed.
func (v *visit) askForToken() error {
	switch {
	case v.r.Method == http.MethodPost:
		return v.showSignIn(http.StatusUnauthorized, signInData{Next: "/", Lost: true})
	case v.r.URL.Path == streamPath || v.r.Header.Get("Sec-Fetch-Mode") == "cors":
		return v.showSignIn(http.StatusUnauthorized, signInData{Next: "/"}) // the script asks, and not a person
	}
	next := v.r.URL.RequestURI()
	link := ""
	if v.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		link = "1"
	}
	return v.redirect(with(signInPath, "next", next, "link", link))
}

func signInPage(v *visit) error {
	query := v.r.URL.Query()
	return v.showSignIn(http.StatusOK, signInData{Next: local(query.Get("next")), Link: query.Get("link") != ""})
}

func (v *visit) showSignIn(status int, data signInData) error {
	if v.c.opts.Tokens == nil {
		return v.redirect("/") // no token is needed
	}
	p := v.page("Sign in", "", data)
	p.Signing = true
	if status == http.StatusUnauthorized {
		v.w.Header().Set("WWW-Authenticate", `Bearer realm="lapse"`)
	}
	return v.show(status, "signin", p)
}

func signIn(v *visit) error {
	if err := v.parseForm(mostToken); err != nil {
		return err
	}
	next := local(v.r.PostForm.Get("next"))
	if v.c.opts.Tokens == nil {
		return v.redirect(next)
	}
	token := strings.TrimSpace(v.r.PostForm.Get("token"))
	if _, ok := v.c.opts.Tokens.Find(token); !ok {
		return v.showSignIn(http.StatusUnauthorized, signInData{Next: next, Wrong: true})
	}
	http.SetCookie(v.w, sessionCookie(v.r, token, v.c.opts.Proxies.HTTPS(v.r)))
	return v.redirect(next)
}

func signOut(v *visit) error {
	http.SetCookie(v.w, sessionCookie(v.r, "", v.c.opts.Proxies.HTTPS(v.r)))
	return v.redirect(with(signInPath, "done", "signed-out"))
}

// crumbs are the pages above one of a collection.
func (v *visit) crumbs() []Crumb {
	return []Crumb{{Text: "Overview", Href: "/"}, {Text: v.collection, Href: collectionHref(v.collection)}}
}

// cookieName is the name of the cookie. Browsers send the cookies of a host to all of its ports, so it
// has the port.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		port = ""
	}
	return "lapse-token" + port
}

// sessionCookie keeps a token, in letters that a cookie may have, until the browser ends; without a token it removes
// the cookie. Scripts do not see it, and requests from pages of other sites do not have it. https says that the browser
// came over https.
func sessionCookie(r *http.Request, token string, https bool) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName(r), Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/",
		HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode,
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

// sessionToken is the token in the cookie of a request; empty if there is none.
func sessionToken(r *http.Request) string {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	return string(token)
}
