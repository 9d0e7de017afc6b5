package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

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
	text := "there is no such collection" + didYouMean(collection, names)
	return &output.StatusError{Status: wire.StatusNotFound, Text: text}
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
