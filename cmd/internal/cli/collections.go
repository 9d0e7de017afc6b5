package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Pause pauses collections.
type Pause struct {
	Collection string `arg:"" optional:""`
	All        bool
	Connection
}

// Run runs the command.
func (c *Pause) Run(ctx context.Context, streams output.Streams) error {
	return setPaused(ctx, &c.Connection, streams, c.Collection, c.All, true, Asking{Yes: true})
}

// Resume resumes collections.
type Resume struct {
	Collection string `arg:"" optional:""`
	All        bool
	Asking
	Connection
}

// Run runs the command.
func (c *Resume) Run(ctx context.Context, streams output.Streams) error {
	return setPaused(ctx, &c.Connection, streams, c.Collection, c.All, false, c.Asking)
}

// setPaused pauses or resumes a collection, or all of them.
func setPaused(
	ctx context.Context, c *Connection, streams output.Streams, collection string, all, paused bool, a Asking,
) error {
	switch {
	case all == (collection != ""):
		return output.Usagef("name one collection, or use --all for every one")
	case !all:
		if err := CheckCollection(collection); err != nil {
			return err
		}
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	names := []string{collection}
	if all {
		found, err := configured(ctx, conn)
		if err != nil {
			return err
		}
		names = nil
		for _, one := range found {
			if one.Paused != paused {
				names = append(names, one.Name)
			}
		}
	}
	for _, name := range names {
		if err := setPausedOf(ctx, conn, c, streams, prefix, name, paused, a); err != nil {
			return err
		}
	}
	return nil
}

// setPausedOf pauses or resumes a collection.
func setPausedOf(ctx context.Context, conn *client.Client, c *Connection, streams output.Streams, prefix wire.Prefix,
	name string, paused bool, a Asking) error {
	config, err := conn.Config(ctx, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if config.Etag == 0 {
		if err := checkExists(ctx, conn, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return output.Statusf(wire.StatusNotFound, "%s: the collection is not configured, so nothing expires in it: "+
			"configure it first (lapse config %s --default-ttl -1)", name, name)
	}
	done := map[bool]string{true: "paused ", false: "resumed "}[paused] + name
	if config.Paused == paused {
		done = name + map[bool]string{true: " is paused already", false: " is not paused"}[paused]
		return c.print(streams, wire.Outcome{Status: wire.StatusOK, Etag: config.Etag}, "%s", done)
	}
	if !paused {
		err := a.ask(ctx, streams, func() (string, error) {
			count, err := conn.Count(ctx, name)
			if err != nil || count.Expired == 0 {
				return "", err
			}
			return fmt.Sprintf("This publishes the events of %s of %s that expired while it was paused, and removes them. "+
				"Resume it?", output.Documents(count.Expired), name), nil
		})
		if err != nil {
			return err
		}
	}
	result, err := reconfigure(ctx, conn, prefix, name, config, func(now wire.Config) wire.Config {
		now.Paused = paused
		return now
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return report(c, streams, result, name, func(wire.Outcome) string { return done })
}

// reconfigure changes a configuration that was read. If somebody has changed it in between, it reads it again.
func reconfigure(ctx context.Context, conn *client.Client, prefix wire.Prefix, name string, config wire.Config,
	change func(wire.Config) wire.Config) (client.Result, error) {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		body, err := json.Marshal(change(config.Published()))
		if err != nil {
			return client.Result{}, err
		}
		result, err := conn.Write(ctx, client.Message{Subject: prefix.Config(name), Body: body,
			IfMatch: config.Etag.String()})
		if err != nil || result.Outcome.Status != wire.StatusPreconditionFailed || attempt == attempts {
			return result, err
		}
		if config, err = conn.Config(ctx, name); err != nil {
			return result, err
		}
		if config.Etag == 0 {
			return result, errors.New("the collection was dropped meanwhile")
		}
	}
}

// configured are the collections that are configured, in the order of their names.
func configured(ctx context.Context, conn *client.Client) (all []wire.Collection, err error) {
	found, err := everyCollection(ctx, conn)
	for _, one := range found {
		if one.Etag != 0 {
			all = append(all, one)
		}
	}
	return all, err
}

// everyCollection are all collections, in the order of their names.
func everyCollection(ctx context.Context, conn *client.Client) (all []wire.Collection, err error) {
	for req := (wire.CollectionsRequest{Limit: wire.MaxListLimit}); ; {
		page, err := conn.Collections(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("collections: %w", err)
		}
		all = append(all, page.Collections...)
		if page.Continuation == "" {
			return all, nil
		}
		req.Continuation = page.Continuation
	}
}

// mostPages bounds how many collections an error looks at.
const mostPages = 10

// configOf reads the configuration of a collection, which a change of it makes if it does not exist.
func configOf(ctx context.Context, conn *client.Client, collection string) (wire.Config, error) {
	config, err := conn.Config(ctx, collection)
	if errors.Is(err, client.ErrNoCollection) {
		return wire.Config{IndexingMode: wire.Consistent}, nil
	}
	return config, err
}

// exists reports whether a collection is configured or holds documents.
func exists(ctx context.Context, conn *client.Client, collection string) (bool, error) {
	config, err := conn.Config(ctx, collection)
	if errors.Is(err, client.ErrNoCollection) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if config.Etag != 0 || config.DefaultTTL != nil || config.IndexingMode != wire.Consistent {
		return true, nil
	}
	count, err := conn.Count(ctx, collection)
	return count.Live+count.Expired > 0, err
}

// checkExists returns an error if there is no such collection: its name may be misspelt. Where collections are open,
// a read of one that does not exist is empty and no error. A user who
// may not read what it takes to know gets no error.
func checkExists(ctx context.Context, conn *client.Client, collection string) error {
	if there, err := exists(ctx, conn, collection); there || err != nil {
		return nil
	}
	var names []string
	for req := (wire.CollectionsRequest{Limit: wire.MaxListLimit}); len(names) < mostPages*wire.MaxListLimit; {
		page, err := conn.Collections(ctx, req)
		if err != nil {
			break
		}
		for _, one := range page.Collections {
			names = append(names, one.Name)
		}
		if req.Continuation = page.Continuation; req.Continuation == "" {
			break
		}
	}
	return output.Statusf(wire.StatusNotFound, "there is no such collection%s", didYouMean(collection, names))
}

// didYouMean names what is nearest to a name that does not exist, or begins with it; "" if nothing is
// near.
func didYouMean(name string, names []string) string {
	nearest := wire.Nearest(name, names)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", output.Name(nearest))
}
