package credentials

import (
	"net/url"
	"regexp"
	"strings"
)

var passwords = regexp.MustCompile(`([?&][a-z_]*password=)[^&,]*`)

// RedactURLs hides the password or token in each URL of a comma-separated list. A text that is
// not a URL loses everything before its last @, because that may be a password. So is a
// parameter whose name ends with password.
func RedactURLs(urls string) string {
	urls = passwords.ReplaceAllString(urls, "${1}xxxxx")
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		u, err := url.Parse(part)
		at := strings.LastIndexByte(part, '@')
		switch {
		case err == nil && u.Host != "":
			if _, hasPassword := u.User.Password(); u.User != nil && !hasPassword {
				u.User = url.User("xxxxx") // NATS takes a user without a password for a token
			}
			parts[i] = u.Redacted()
		case at >= 0:
			parts[i] = "xxxxx" + part[at:]
		}
	}
	return strings.Join(parts, ",")
}
