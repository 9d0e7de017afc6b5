package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
)

// parsed is the command that arguments make.
func parsed(t *testing.T, args ...string) (any, error) {
	t.Helper()
	parser, err := newParser(t.Context(), output.Streams{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return nil, err
	}
	return ctx.Selected().Target.Addr().Interface(), nil
}

// TestSelections: which request the flags of a list make, a list or a query.
func TestSelections(t *testing.T) {
	for args, want := range map[string]string{
		"":                        `list {}`,
		"--by-deadline":           `list {"order":"deadline"}`,
		"--order deadline":        `list {"order":"deadline"}`,
		"--id-prefix a":           `list {"prefix":"a"}`,
		"--where customer=c1":     `query {"where":{"/customer":"c1"}}`,
		"--where a.b=1 --scan":    `query {"where":{"/a/b":1},"scan":true}`,
		"--where a=x,y":           `query {"where":{"/a":{"in":["x","y"]}}}`,
		"--where a=1 --where b=2": `query {"where":{"/a":1,"/b":2}}`,
		"--where a>=1 --where a<2 --order -price":  `query {"where":{"/a":{"gte":1,"lt":2}},"order":"-/price"}`,
		"--where=a=1 --order=id":                   `query {"where":{"/a":1},"order":"id"}`,
		"--order price":                            `query {"order":"/price"}`,
		"--order -/seat/row":                       `query {"order":"-/seat/row"}`,
		"--where a=1 --by-deadline --within 1h":    `query {"where":{"/a":1},"order":"deadline","within":"1h0m0s"}`,
		"--where a=1 --order deadline --within 1h": `query {"where":{"/a":1},"order":"deadline","within":"1h0m0s"}`,
	} {
		command, err := parsed(t, append([]string{"list", "orders"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		pages, err := command.(*List).pager(0, "")
		name, request := "list", any(pages.list)
		if pages.queries {
			name, request = "query", pages.query
		}
		text, _ := json.Marshal(request)
		got := strings.NewReplacer(`\u003e`, ">", `\u003c`, "<").Replace(name + " " + string(text))
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"--where customer":                     "has no operator",
		"--where a=1 --where a=2":              "about the same value",
		"--scan":                               "add --where",
		"--where a=1 --id-prefix b":            "do not go together",
		"--order price --id-prefix b":          "do not go together",
		"--by-deadline --order price":          "do not go together",
		"--where a=1 --within 1h":              "add --by-deadline",
		"--where a=1 --by-deadline --within=0": "",
		"--order a//b":                         "order",
		"--order -deadline":                    "one direction only",
	} {
		command, err := parsed(t, append([]string{"list", "orders"}, strings.Fields(args)...)...)
		if err == nil {
			_, err = command.(*List).pager(0, "")
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.HasSuffix(err.Error(), ". (") {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestManySelections: delete and touch take an id, the beginning of ids, or conditions, and one of these alone.
func TestManySelections(t *testing.T) {
	for args, want := range map[string]string{
		"42":                              "one",
		"--where user=7":                  "several",
		"--where user=7 --scan --yes":     "several",
		"--where user=7 --dry-run":        "several",
		"--id-prefix user:7:":             "several",
		"":                                "name the id",
		"42 --where user=7":               "do not go together",
		"--id-prefix a --where user=7":    "do not go together",
		"42 --scan":                       "add --where",
		"--id-prefix a --scan":            "add --where",
		"42 --dry-run":                    "belong to --id-prefix and --where",
		"--where user=7 --continuation x": "repeated as it is",
		"--where user=7 --if-match 3":     "do not go with --where",
		"--where user":                    "has no operator",
	} {
		command, err := parsed(t, append([]string{"delete", "orders"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		c := command.(*selectedWrite)
		several, err := c.several()
		if err == nil && several {
			_, err = c.pager()
		}
		got := map[bool]string{true: "several", false: "one"}[several]
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestIndexes: --index gives all indexes of a collection, and --no-indexes removes them.
func TestIndexes(t *testing.T) {
	now := wire.Config{Indexes: []string{"/a"}, IndexingMode: wire.Consistent, Changes: true}
	for args, want := range map[string][]string{
		"--changes":                     {"/a"},
		"--index customer --index /a,b": {"/customer", "/a,b"},
		"--index seat.row":              {"/seat/row"},
		"--no-indexes":                  nil,
	} {
		command, err := parsed(t, append([]string{"config", "orders"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := command.(*Config).apply(now); !reflect.DeepEqual(got.Indexes, want) || !got.Changes {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"--index seat/row", "--index=", "--index a..b"} {
		if _, err := parsed(t, append([]string{"config", "orders"}, strings.Fields(args)...)...); err == nil ||
			strings.HasSuffix(err.Error(), ".") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
