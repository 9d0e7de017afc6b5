package credentials

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// NATS is how a process connects to a NATS server. The zero value is for a server that asks
// for nothing. Its errors name the flags of the command line.
type NATS struct {
	User         string // with PasswordFile
	PasswordFile string // its first line is the password
	NKeyFile     string // the seed of an nkey
	Creds        string // a credentials file: a JWT and the seed of its nkey
	TokenFile    string // its first line is the token of the server
	CA           string // certificates to trust; those of the system if empty
	Cert, Key    string // the client certificate and its private key
	// InboxPrefix is what the subjects begin with to which replies come; _INBOX if empty.
	// With a prefix of its own, a user can read no reply that is for another user.
	InboxPrefix string
}

const (
	natsUser     = "--nats-user"
	natsPassword = "--nats-password-file"
	natsNKey     = "--nats-nkey-file"
	natsCreds    = "--nats-creds"
	natsToken    = "--nats-token-file"
	natsCA       = "--nats-ca"
	natsCert     = "--nats-cert"
	natsKey      = "--nats-key"
	natsInbox    = "--nats-inbox-prefix"
)

// Options checks the files, and returns options for connections to the URLs.
func (n NATS) Options(urls string) ([]nats.Option, error) {
	if err := n.check(urls); err != nil {
		return nil, err
	}
	var options []nats.Option
	switch {
	case n.User != "":
		last, err := password(natsPassword, n.PasswordFile)
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		options = append(options, nats.UserInfoHandler(func() (string, string) {
			mu.Lock()
			defer mu.Unlock()
			// Somebody may be writing the file at this moment. The next attempt reads it again.
			if now, err := password(natsPassword, n.PasswordFile); err == nil {
				last = now
			}
			return n.User, last
		}))
	case n.TokenFile != "":
		token, err := password(natsToken, n.TokenFile)
		if err != nil {
			return nil, err
		}
		options = append(options, nats.Token(strings.TrimSpace(token)))
	case n.NKeyFile != "":
		option, err := nats.NkeyOptionFromSeed(n.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s %s: it has no seed of a user's nkey: use a file with a line that begins with SU (%w)",
				natsNKey, n.NKeyFile, err)
		}
		options = append(options, option)
	case n.Creds != "":
		if err := checkCreds(n.Creds); err != nil {
			return nil, err
		}
		options = append(options, nats.UserCredentials(n.Creds))
	}
	if n.CA != "" {
		if _, err := authorities(natsCA, n.CA); err != nil {
			return nil, err
		}
		options = append(options, nats.RootCAs(n.CA))
	}
	if n.Cert != "" {
		if _, err := certificate(natsCert, n.Cert, natsKey, n.Key); err != nil {
			return nil, err
		}
		options = append(options, nats.ClientCert(n.Cert, n.Key))
	}
	if n.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(n.InboxPrefix))
	}
	return options, nil
}

// check finds what contradicts itself.
func (n NATS) check(urls string) error {
	var ways []string
	for _, way := range [][2]string{{natsUser, n.User}, {natsNKey, n.NKeyFile}, {natsCreds, n.Creds},
		{natsToken, n.TokenFile}} {
		if way[1] != "" {
			ways = append(ways, way[0])
		}
	}
	if len(ways) > 1 {
		return fmt.Errorf("%s exclude each other: give one of them", strings.Join(ways, " and "))
	}
	if err := together(natsUser, n.User, natsPassword, n.PasswordFile); err != nil {
		return err
	}
	if err := together(natsCert, n.Cert, natsKey, n.Key); err != nil {
		return err
	}
	if p := n.InboxPrefix; p != "" && (strings.ContainsAny(p, "*> \t\r\n") || strings.Contains("."+p+".", "..")) {
		return fmt.Errorf("%s %q is not valid: use the beginning of a subject, in whole tokens without wildcards, such as "+
			"_INBOX.orders", natsInbox, p)
	}
	if len(ways) > 0 && anyUser(urls) {
		return fmt.Errorf("%s: %w", ways[0], errUserTwice)
	}
	return nil
}

// anyUser reports whether one of several URLs has a user.
func anyUser(urls string) bool {
	for one := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.User != nil {
			return true
		}
	}
	return false
}

func checkCreds(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", natsCreds, err)
	}
	const use = "use a credentials file as nsc makes it"
	// Of a file without a JWT, nkeys returns all.
	if jwt, _ := nkeys.ParseDecoratedJWT(content); len(strings.Fields(jwt)) != 1 || strings.Count(jwt, ".") != 2 {
		return fmt.Errorf("%s %s: it has no JWT of a user: %s", natsCreds, path, use)
	}
	key, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return fmt.Errorf("%s %s: it has no seed of a user's nkey: %s", natsCreds, path, use)
	}
	key.Wipe()
	return nil
}

// Denied is what a NATS server does not permit a user.
type Denied struct {
	Subscribe bool // otherwise publish
	Subject   string
}

func (d *Denied) Error() string {
	verb := "publish"
	if d.Subscribe {
		verb = "subscribe"
	}
	return "the NATS server does not permit this user to " + verb + " to " + d.Subject
}

// violation is the text of a denial: the server tells it no other way, and the text is part of its protocol.
var violation = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to ("(?:[^"\\]|\\.)*")`)

// AsDenied reads an error that nats.go hands to the error handler of a connection. It
// returns nil if the error is about something else.
func AsDenied(err error) *Denied {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	match := violation.FindStringSubmatch(err.Error())
	if match == nil {
		return nil
	}
	subject, unquoteErr := strconv.Unquote(match[2])
	if unquoteErr != nil {
		return nil
	}
	return &Denied{Subscribe: match[1] == "Subscription", Subject: subject}
}

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
