package cli

import (
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
)

// Selection says which documents a list has, and in which order.
type Selection struct {
	ByDeadline bool       `name:"by-deadline" help:"Only the documents that will expire, the next to expire first."`
	Within     *Period    `placeholder:"TIME" help:"With --by-deadline, those that will expire within this time, such as 90s, 12h or 7d."`
	Until      *wire.Time `placeholder:"INSTANT" help:"With --by-deadline, those that will expire by this instant, such as 2026-01-31T12:00:00Z."`
	IDPrefix   string     `name:"id-prefix" placeholder:"TEXT" help:"Only the documents whose ids begin with this. lapse looks at all ids for it."`
}

// request is the request for the first page.
func (s Selection) request(limit int, continuation string) (wire.ListRequest, error) {
	req := wire.ListRequest{Limit: limit, Continuation: continuation, Until: s.Until, Prefix: s.IDPrefix}
	switch {
	case !s.ByDeadline && (s.Within != nil || s.Until != nil):
		return req, output.Usagef("--within and --until limit a list by deadline: add --by-deadline")
	case s.Within != nil && s.Until != nil:
		return req, output.Usagef("--within and --until are both set: use one of them")
	case s.ByDeadline && s.IDPrefix != "":
		return req, output.Usagef("--by-deadline and --id-prefix do not go together: leave out one of them")
	case s.Within != nil && *s.Within <= 0:
		return req, output.Usagef("--within %s is not valid: use a duration over 0 such as 90s, 12h or 7d", time.Duration(*s.Within))
	}
	if s.ByDeadline {
		req.Order = wire.ByDeadline
	}
	if s.Within != nil {
		req.Within = time.Duration(*s.Within).String()
	}
	return req, nil
}
