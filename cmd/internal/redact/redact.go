// Package redact hides secrets in what is shown or logged.
package redact

import (
	"net/url"
	"strings"
)

// URLs hides the passwords in URLs that are separated by commas.
func URLs(urls string) string {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		u, err := url.Parse(part)
		at := strings.LastIndexByte(part, '@')
		switch {
		case err == nil && u.Host != "":
			if _, hasPassword := u.User.Password(); u.User != nil && !hasPassword {
				u.User = url.User("xxxxx") // a token, in a URL of NATS
			}
			parts[i] = u.Redacted()
		case at >= 0: // not a URL, but there may be a password in it
			parts[i] = "xxxxx" + part[at:]
		}
	}
	return strings.Join(parts, ",")
}
