package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// mostPages bounds how many collections an error looks at.
const mostPages = 10

// exists reports whether a collection is configured or holds documents.
func exists(ctx context.Context, conn *client.Client, collection string) (bool, error) {
	config, err := conn.Config(ctx, collection)
	if err != nil {
		return false, err
	}
	if config.Etag != 0 || config.DefaultTTL != nil || config.IndexingMode != wire.Consistent {
		return true, nil
	}
	count, err := conn.Count(ctx, collection)
	return count.Live+count.Expired > 0, err
}

// checkExists returns an error if there is no such collection: its name may be misspelt. A user who
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
	nearest, least := "", min(max(1, len(name)/3), len(name)-1)
	for _, one := range slices.Sorted(slices.Values(names)) {
		n := distance(strings.ToLower(name), strings.ToLower(one))
		if name != "" && strings.HasPrefix(strings.ToLower(one), strings.ToLower(name)) {
			n = min(n, 1, least)
		}
		if n < least || n == least && (nearest == "" || len(one) < len(nearest)) {
			nearest, least = one, n
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", output.Name(nearest))
}

// distance is how many characters it takes to change, insert or remove, or to swap with the next, to
// make a name of another.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case s[i-1] == t[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
