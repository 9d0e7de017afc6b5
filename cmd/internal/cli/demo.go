package cli

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/demo"
	"github.com/seed18712806/lapse/cmd/internal/output"
)

type demoCommand struct {
	Rate   int    `default:"50" placeholder:"N"`
	For    Period `placeholder:"TIME"`
	Listen string `name:"http-listen" env:"LAPSE_HTTP_LISTEN" group:"http" placeholder:"HOST:PORT"`
}

func (c *demoCommand) Run(ctx context.Context, streams output.Streams) error {
	if c.Rate < 1 || c.Rate > 1000 {
		return output.Usagef("--rate %d is not valid: use a number from 1 to 1000", c.Rate)
	}
	if c.For < 0 {
		return output.Usagef("--for %s is not valid: use a duration over 0, such as 10m", time.Duration(c.For))
	}
	release, _, _ := version()
	return demo.Run(ctx, demo.Options{Version: release, HTTPListen: c.Listen, Rate: c.Rate, For: time.Duration(c.For)}, streams)
}
