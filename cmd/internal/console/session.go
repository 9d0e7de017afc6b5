package console

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
)

// cookieName is the name of the cookie. Browsers send the cookies of a host to all of its ports, so it
// has the port.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		port = ""
	}
	return "lapse-token" + port
}

// sessionCookie keeps a token, in letters that a cookie may have, until the browser ends. Scripts do not
// see it, and requests from pages of other sites do not have it. https says that the browser came over https.
func sessionCookie(r *http.Request, token string, https bool) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/",
		HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode,
	}
}

// goneCookie removes the cookie.
func goneCookie(r *http.Request, https bool) *http.Cookie {
	c := sessionCookie(r, "", https)
	c.MaxAge = -1
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
