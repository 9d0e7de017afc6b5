package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/forward"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// lettersShown is how many dead letters the page shows.
const lettersShown = 20

// Consumers are the durable consumers of the events, and the dead letters of the forwarders among them.
type Consumers struct {
	Durables []client.ConsumerStatus
	Dead     map[string][]forward.Dead // by account
}

// Consuming reads consumers, and asks forwarders to post dead letters again. Accounts are those for readers.
type Consuming struct {
	Client   *client.Client
	Prefix   wire.Prefix
	Accounts []string

	mu   sync.Mutex
	last Consumers
	err  error
	at   time.Time
}

// Read returns consumers that were read a second ago at most, so that many pages cost NATS no more than one.
func (c *Consuming) Read(ctx context.Context) (Consumers, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWithin)
		defer cancel()
		c.last, c.err = c.read(ctx)
		c.at = time.Now()
	}
	return c.last, c.err
}

func (c *Consuming) read(ctx context.Context) (found Consumers, err error) {
	if found.Durables, err = c.Client.Consumers(ctx, c.Accounts...); err != nil {
		return found, err
	}
	found.Dead = make(map[string][]forward.Dead)
	for _, account := range append([]string{""}, c.Accounts...) {
		js, err := c.Client.JetStream(account)
		if err != nil {
			return found, err
		}
		if found.Dead[account], err = forward.CountDead(ctx, js, c.Prefix, lettersShown); err != nil {
			return found, err
		}
		for _, d := range found.Dead[account] { // of each letter, the page shows no more than this
			for i := range d.Last {
				d.Last[i] = d.Last[i].WithoutEvent(snippet)
			}
		}
	}
	return found, nil
}

type consumersData struct {
	Missing  string // why there are none
	Durables []durable
	Letters  []letter // the newest first
	Dead     uint64   // of all durables
	Some     int      // the same, to compare with what is shown
	Once     string
}

// durable is a durable name on the page.
type durable struct {
	client.ConsumerStatus
	Kind string
	Dead uint64
	Gone bool // there are dead letters of it, and no consumer any more
}

// letter is a dead letter on the page.
type letter struct {
	forward.Letter
	Durable, Account string
	Given            wire.Time // up
	Document         string    // the beginning of its event
}

// mayConsume refuses a token that is not for all collections: a consumer may have events of any.
func (v *visit) mayConsume() error {
	if !v.grant.All() {
		return access.NewProblem(http.StatusForbidden, access.NotAllowed, "This token is not for all collections, and consumers may have events of all.")
	}
	return nil
}

func consumersPage(v *visit) error {
	if err := v.mayConsume(); err != nil {
		return err
	}
	data := consumersData{Once: once()}
	found, err := v.c.opts.Consumers.Read(v.r.Context())
	if err != nil {
		data.Missing = err.Error()
	} else {
		data.Durables, data.Letters = found.rows()
	}
	for _, d := range data.Durables {
		data.Dead += d.Dead
	}
	data.Some = int(min(data.Dead, 1<<30))
	return v.show(http.StatusOK, "consumers", v.page("Consumers", "consumers", data))
}

// rows are the durable names and the last dead letters, as the page shows them.
func (c Consumers) rows() (durables []durable, letters []letter) {
	for _, s := range c.Durables {
		durables = append(durables, durable{ConsumerStatus: s, Kind: kindOf(s.Name)})
	}
	for account, dead := range c.Dead {
		for _, d := range dead {
			at := slices.IndexFunc(durables, func(one durable) bool { return one.Account == account && one.Name == d.Durable })
			if at < 0 {
				at = len(durables)
				durables = append(durables, durable{ConsumerStatus: client.ConsumerStatus{Account: account, Name: d.Durable}, Gone: true})
			}
			durables[at].Kind, durables[at].Dead = "forwarder", d.Count
			for _, l := range d.Last {
				letters = append(letters, letter{l, d.Durable, account, wire.Time(l.At.UnixMilli()), l.Text})
			}
		}
	}
	slices.SortFunc(durables, func(a, b durable) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(letters, func(a, b letter) int { return cmp.Or(cmp.Compare(b.Given, a.Given), cmp.Compare(b.Seq, a.Seq)) })
	return durables, letters[:min(lettersShown, len(letters))]
}

// kindOf is what a durable name says: lapse forward and lapse archive name their consumers so.
func kindOf(name string) string {
	switch {
	case strings.HasPrefix(name, "forward-"):
		return "forwarder"
	case strings.HasPrefix(name, "archive-"):
		return "archive"
	}
	return "consumer"
}

// resendLetters asks the forwarder of a name to post its dead letters again.
func resendLetters(v *visit) error {
	if err := v.mayConsume(); err != nil {
		return err
	}
	if !v.grant.Write {
		return refused()
	}
	name, account := v.r.PostForm.Get("name"), v.r.PostForm.Get("account")
	if err := wire.CheckCollection(name); err != nil {
		return access.BadRequest("the name of the consumer %s is not valid: use 1 to 128 of A-Z a-z 0-9 _ -", wire.Quote(name))
	}
	if account != "" && !slices.Contains(v.c.opts.Consumers.Accounts, account) {
		return access.BadRequest("the account %s is not one for readers: use the button on the page", wire.Quote(account))
	}
	err := forward.AskAgain(v.r.Context(), v.c.opts.Consumers.Client.Conn(), v.c.opts.Prefix, account, name)
	switch {
	case errors.Is(err, forward.ErrNoForwarder):
		return access.NewProblem(http.StatusConflict, noForwarder, "No lapse forward runs under the name %s, so nobody has the URL and the secret of the receiver.", name)
	case err != nil:
		return access.NewProblem(http.StatusServiceUnavailable, access.Unavailable, "%s", err)
	}
	return v.redirect(with(root+"consumers", "done", "resent"))
}

// noForwarder is the code of the problem that nobody can post dead letters again.
const noForwarder = "no-forwarder"

// Follow is what a durable follows, for people.
func (d durable) Follow() string { return strings.Join(d.Follows, ", ") }
