package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/forward"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// lettersShown is how many dead letters the page shows.
const lettersShown = 20

// consumers are the durable consumers of the events, and the dead letters of the forwarders among them.
type consumers struct {
	durables []client.ConsumerStatus
	dead     map[string][]forward.Dead // by account
}

// readConsumers asks NATS, in each account.
func (o Options) readConsumers(ctx context.Context) (found consumers, err error) {
	if found.durables, err = o.Client.Consumers(ctx, o.Accounts...); err != nil {
		return found, err
	}
	found.dead = make(map[string][]forward.Dead)
	for _, account := range append([]string{""}, o.Accounts...) {
		js, err := o.Client.JetStream(account)
		if err != nil {
			return found, err
		}
		if found.dead[account], err = forward.CountDead(ctx, js, o.Prefix, lettersShown); err != nil {
			return found, err
		}
		for _, d := range found.dead[account] { // of each letter, the page shows no more than this
			for i := range d.Last {
				d.Last[i] = d.Last[i].WithoutEvent(snippet)
			}
		}
	}
	return found, nil
}

// consumersData is the data of the page.
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
		return access.NewProblem(http.StatusForbidden, access.NotAllowed, "This token is not for all collections, and "+
			"consumers may have events of all.")
	}
	return nil
}

func consumersPage(v *visit) error {
	if err := v.mayConsume(); err != nil {
		return err
	}
	data := consumersData{Once: once()}
	found, err := v.c.consumers.get(v.r.Context())
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
func (c consumers) rows() (durables []durable, letters []letter) {
	for _, s := range c.durables {
		durables = append(durables, durable{ConsumerStatus: s, Kind: kindOf(s.Name)})
	}
	for account, dead := range c.dead {
		for _, d := range dead {
			at := slices.IndexFunc(durables, func(one durable) bool { return one.Account == account && one.Name == d.Durable })
			if at < 0 {
				at = len(durables)
				gone := client.ConsumerStatus{Account: account, Name: d.Durable}
				durables = append(durables, durable{ConsumerStatus: gone, Gone: true})
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
	slices.SortFunc(letters, func(a, b letter) int {
		return cmp.Or(cmp.Compare(b.Given, a.Given), cmp.Compare(b.Seq, a.Seq))
	})
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
		return access.BadRequest("the name of the consumer %s is not valid: use 1 to 128 of A-Z a-z 0-9 _ -",
			wire.Quote(name))
	}
	if account != "" && !slices.Contains(v.c.opts.Accounts, account) {
		return access.BadRequest("the account %s is not one for readers: use the button on the page", wire.Quote(account))
	}
	err := forward.AskAgain(v.r.Context(), v.c.opts.Client.Conn(), v.c.opts.Prefix, account, name)
	switch {
	case errors.Is(err, forward.ErrNoForwarder):
		return access.NewProblem(http.StatusConflict, noForwarder, "No lapse forward runs under the name %s, so nobody "+
			"has the URL and the secret of the receiver.", name)
	case err != nil:
		return access.NewProblem(http.StatusServiceUnavailable, access.Unavailable, "%s", err)
	}
	return v.redirect(with(root+"consumers", "done", "resent"))
}

// noForwarder is the code of the problem that nobody can post dead letters again.
const noForwarder = "no-forwarder"

// Follow is what a durable follows, for people.
func (d durable) Follow() string { return strings.Join(d.Follows, ", ") }
