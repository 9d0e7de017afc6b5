package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// queryPointers are the pointers of the random indexes, conditions and orders.
var queryPointers = []string{"/s", "/n", "/m", "/a", "/o/x", "/o/y~1", "/a/0", "/", "/gone"}

// What the random documents and conditions have: few values, so that they meet.
var (
	queryTexts = []string{
		``, `a`, `ab`, `abc`, `b`, `B`, `é`, `a\u0000`, `a\u0001`, `a\u0000b`, `10`, `2`, `\ud83d\ude00`, `\u0061b`,
		strings.Repeat("y", 255), strings.Repeat("y", 256), strings.Repeat("é", 128),
	}
	queryNumbers = []string{"-1e300", "-2", "-1.5", "-0", "0", "0.0", "1", "1.0", "1e0", "2", "10", "100", "1e300",
		"1e400", "-5e-324"}
	// those that a condition may have
	queryAskedTexts   = append(slices.Clone(queryTexts[:15]), `ac`, `\u0000`, `\u0001`, `c`)
	queryAskedNumbers = append(slices.Clone(queryNumbers[:13]), "1.25", "-1e-5", "9007199254740993")
)

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// chance is true in so many of a hundred cases.
func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func quoted(inside string) string { return `"` + inside + `"` }

// randomScalar makes a value, of the given texts and numbers.
func randomScalar(r *rand.Rand, texts, numbers []string) string {
	switch r.IntN(8) {
	case 0:
		return "null"
	case 1:
		return pick(r, []string{"true", "false"})
	case 2, 3:
		return pick(r, numbers)
	case 4:
		return pick(r, numbers[3:10]) // those about 0 and 1
	}
	if chance(r, 60) {
		texts = texts[:5]
	}
	return quoted(pick(r, texts))
}

// randomValue makes what a member of a document may be.
func randomValue(r *rand.Rand, arrays int) string {
	if !chance(r, arrays) {
		if chance(r, 4) {
			return `{"x":1}`
		}
		return randomScalar(r, queryTexts, queryNumbers)
	}
	n := r.IntN(4)
	if chance(r, 10) {
		n = 31 + r.IntN(3)
	}
	elements := make([]string, n)
	for i := range elements {
		elements[i] = randomScalar(r, queryTexts[:14], queryNumbers[:13])
	}
	if chance(r, 5) {
		elements = append(elements, pick(r, []string{`[]`, `{}`, `1e999`, quoted(queryTexts[15])}))
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// randomBody makes a document or a patch.
func randomBody(r *rand.Rand) string {
	var members []string
	add := func(percent int, name, value string) {
		if chance(r, percent) {
			members = append(members, quoted(name)+":"+value)
		}
	}
	add(80, "s", quoted(pick(r, queryTexts)))
	add(80, "n", pick(r, queryNumbers))
	add(70, "m", randomValue(r, 30))
	add(60, "a", randomValue(r, 90))
	add(40, "o", fmt.Sprintf(`{"x":%s,"y/":%s}`, randomValue(r, 10), randomValue(r, 20)))
	add(10, "o", fmt.Sprintf(`{ "x" : %s }`, randomValue(r, 0)))
	add(20, "", randomValue(r, 10))
	add(20, `\u0073`, quoted(pick(r, queryTexts)))
	add(30, "filler", quoted(strings.Repeat("z", r.IntN(400))))
	add(40, "ttl", pick(r, []string{"-1", "-1", "1", "2", "5", "60", "600", "600", "600", "600"}))
	return "{" + strings.Join(members, ",") + "}"
}

var queryIDs = func() (ids []string) {
	for i := range 110 {
		ids = append(ids, fmt.Sprintf("d%d", i))
	}
	return append(ids, "é", "a/b", "a b", "\x01", "\x00", "\x00\x01", "Z", "~", strings.Repeat("i", 255), "-")
}()

// randomWrite makes a write of one of some documents.
func randomWrite(r *rand.Rand, p wire.Prefix, collection string, ids []string) *nats.Msg {
	id := pick(r, ids)
	msg := &nats.Msg{Header: nats.Header{}}
	op := pick(r, []wire.Op{
		wire.Upsert, wire.Upsert, wire.Upsert, wire.Upsert, wire.Create, wire.Create, wire.Replace,
		wire.Patch, wire.Patch, wire.Touch, wire.Delete,
	})
	if op != wire.Touch && op != wire.Delete {
		msg.Data = []byte(randomBody(r))
	}
	if op != wire.Delete && chance(r, 10) {
		at := time.Now().Add(time.Duration(pick(r, []int{300, 1500, 3000, 90_000})) * time.Millisecond)
		msg.Header.Set(wire.HeaderExpiresAt, wire.Time(at.UnixMilli()).String())
	}
	msg.Subject = p.Write(op, collection, id)
	return msg
}

// randomConfig makes a configuration, with a default TTL from some.
func randomConfig(r *rand.Rand, ttls []string) queryConfig {
	return queryConfig{ttl: pick(r, ttls), paused: chance(r, 5)}.reindexed(r)
}

// queryConfig is a configuration.
type queryConfig struct {
	ttl     string
	paused  bool
	indexes []string
}

func (c queryConfig) String() string {
	indexes, _ := json.Marshal(c.indexes)
	return fmt.Sprintf(`{"defaultTtl":%s,"indexes":%s,"paused":%t}`, c.ttl, indexes, c.paused)
}

// reindexed returns the configuration with other indexes.
func (c queryConfig) reindexed(r *rand.Rand) queryConfig {
	indexes := slices.Clone(queryPointers)
	r.Shuffle(len(indexes), func(i, j int) { indexes[i], indexes[j] = indexes[j], indexes[i] })
	c.indexes = indexes[:r.IntN(min(6, wire.MaxIndexes))]
	return c
}

// query is a random query.
type query struct {
	where    map[string]string
	order    string
	until    *wire.Time
	within   time.Duration
	scan     bool
	count    bool
	limit    int
	maxBytes int
	bare     bool // pages after the first are asked for by the continuation alone
}

func (q query) String() string {
	return fmt.Sprintf("where %s order %q until %v within %v scan %t count %t limit %d maxBytes %d bare %t",
		q.whereText(), q.order, q.until, q.within, q.scan, q.count, q.limit, q.maxBytes, q.bare)
}

// whereText is the property where of the query.
func (q query) whereText() string {
	var members []string
	for pointer, c := range q.where {
		name, _ := json.Marshal(pointer)
		members = append(members, string(name)+":"+c)
	}
	slices.Sort(members)
	return "{" + strings.Join(members, ",") + "}"
}

// options are those of the first page.
func (q query) options() (sink.QueryOptions, error) {
	where := map[string][]byte{}
	for pointer, c := range q.where {
		where[pointer] = []byte(c)
	}
	conditions, err := entries.ParseWhere(where)
	if err != nil {
		return sink.QueryOptions{}, err
	}
	order, err := entries.ParseOrder(q.order)
	return sink.QueryOptions{
		Limit: q.limit, MaxBytes: q.maxBytes, Where: conditions, Order: order, Until: q.until,
		Within: q.within, Count: q.count, Scan: q.scan,
	}, err
}

// randomCondition makes a condition.
func randomCondition(r *rand.Rand) string {
	scalar := func() string { return randomScalar(r, queryAskedTexts, queryAskedNumbers) }
	switch r.IntN(10) {
	case 0, 1:
		return scalar()
	case 2:
		return fmt.Sprintf(`{"eq":%s}`, scalar())
	case 3, 4:
		values := make([]string, 1+r.IntN(5))
		for i := range values {
			values[i] = scalar()
		}
		return fmt.Sprintf(`{"in":[%s]}`, strings.Join(values, ","))
	case 5, 6:
		return fmt.Sprintf(`{"prefix":%s}`, quoted(pick(r, queryAskedTexts)))
	}
	end := func() string { return pick(r, queryAskedNumbers) }
	if chance(r, 40) {
		end = func() string { return quoted(pick(r, queryAskedTexts)) }
	}
	var members []string
	if !chance(r, 25) {
		members = append(members, fmt.Sprintf(`%q:%s`, pick(r, []string{"gt", "gte"}), end()))
	}
	if len(members) == 0 || chance(r, 60) {
		members = append(members, fmt.Sprintf(`%q:%s`, pick(r, []string{"lt", "lte"}), end()))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// randomQuery makes a query of a collection with some indexes, which mostly serve it.
func randomQuery(r *rand.Rand, indexes []string) query {
	q := query{
		where: map[string]string{}, count: chance(r, 15), limit: pick(r, []int{0, 1, 2, 3, 7, 20, 1000}),
		bare: chance(r, 30), maxBytes: pick(r, []int{0, 0, 0, 1, 100, 3000}), scan: chance(r, 20),
	}
	pointer := func() string {
		if len(indexes) > 0 && chance(r, 75) {
			return pick(r, indexes)
		}
		return pick(r, queryPointers)
	}
	for range pick(r, []int{0, 0, 1, 1, 1, 1, 1, 2, 2, 4}) {
		q.where[pointer()] = randomCondition(r)
	}
	switch r.IntN(8) {
	case 0, 1, 2:
		q.order = pick(r, []string{"", "-"}) + pointer()
	case 3:
		q.order = "deadline"
		switch r.IntN(4) {
		case 0:
			q.until = new(wire.Time(time.Now().Add(time.Duration(r.IntN(5000)-500) * time.Millisecond).UnixMilli()))
		case 1:
			q.within = time.Duration(1+r.IntN(5000)) * time.Millisecond
		}
	case 4:
		q.order = "id"
	}
	if len(q.where) == 0 && q.order == "" {
		q.where[pointer()] = randomCondition(r)
	}
	return q
}

// served reports whether indexes serve the query.
func (q query) served(indexes []string) bool {
	indexed := func(pointer string) bool { return slices.Contains(indexes, pointer) }
	some := false // a condition is indexed
	same := false // such a one by equality
	for pointer, c := range q.where {
		if indexed(pointer) {
			some = true
			same = same || c[0] != '{' || strings.HasPrefix(c, `{"in"`) || strings.HasPrefix(c, `{"eq"`)
		}
	}
	switch q.order {
	case "deadline":
		return true
	case "id":
		return same
	case "":
		return some || q.scan
	}
	return indexed(strings.TrimPrefix(q.order, "-"))
}
