package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// setting is a property of a configuration beside the default TTL and the index: a row of the form, and of the page of
// a collection. A property with options is chosen from them; another one is typed, on one line or on several.
type setting struct {
	Name    string // of the field
	Label   string // in the form
	Title   string // on the page of a collection
	Help    string
	Options []option
	Lines   int // that the field has; 0 for one

	show  func(c wire.Config) string // as the field has it
	human func(c wire.Config) string // for the page of a collection
	read  func(text string, c *wire.Config) error
}

// option is a value that a field may have, and its text.
type option struct{ Value, Text string }

const yes, no = "yes", "no"

// settings are all such properties, in the order in which pages show them.
var settings = []setting{
	{
		Name: "min", Label: "Shortest TTL of a write", Title: "Shortest TTL", Help: "A write with a shorter one is refused.",
		show:  func(c wire.Config) string { return limitField(c.MinTTL) },
		human: func(c wire.Config) string { return limitText(c.MinTTL) },
		read:  func(text string, c *wire.Config) error { return readLimit(text, &c.MinTTL) },
	},
	{
		Name: "max", Label: "Longest TTL of a write", Title: "Longest TTL", Help: "A write with a longer one is refused.",
		show:  func(c wire.Config) string { return limitField(c.MaxTTL) },
		human: func(c wire.Config) string { return limitText(c.MaxTTL) },
		read:  func(text string, c *wire.Config) error { return readLimit(text, &c.MaxTTL) },
	},
	{
		Name: "life", Label: "Longest life of a document", Title: "Longest life",
		Help:  "Counted from its creation, whatever renews it.",
		show:  func(c wire.Config) string { return limitField(c.MaxLife) },
		human: func(c wire.Config) string { return limitText(c.MaxLife) },
		read:  func(text string, c *wire.Config) error { return readLimit(text, &c.MaxLife) },
	},
	{
		Name: "warn", Label: "Warn before a deadline", Title: "Warnings", Help: "Up to four, with commas between them, " +
			"such as 1h,5m.",
		show:  func(c wire.Config) string { return output.Durations(c.WarnBefore) },
		human: warningsText, read: readWarnings,
	},
	{
		Name: "slide", Label: "A get of a document renews its clock", Title: "A read renews the clock",
		Options: []option{{no, "no"}, {yes, "yes"}},
		show:    func(c wire.Config) string { return yesOrNo(c.SlideOnRead != 0) },
		human:   func(c wire.Config) string { return yesOrNo(c.SlideOnRead != 0) },
		read:    readSlide,
	},
	{
		Name: "part", Label: "After which part of the TTL it does", Title: "After which part of the TTL", // behind "slide"
		Help: "A number between 0 and 1, such as 0.01; nothing for a tenth.",
		show: slidePart, human: slidePart, read: readSlidePart,
	},
	{
		Name: "body", Label: "Events have the document in them", Title: "Events have the document",
		Options: []option{{yes, "yes"}, {no, "no: they have its id alone"}},
		show:    func(c wire.Config) string { return yesOrNo(hasEventBody(c)) },
		human:   func(c wire.Config) string { return yesOrNo(hasEventBody(c)) },
		read:    readEventBody,
	},
	{
		Name: "changes", Label: "Publish each write that takes effect", Title: "Publishes changes",
		Options: []option{{no, "no"}, {yes, "yes"}},
		show:    func(c wire.Config) string { return yesOrNo(c.Changes) },
		human:   func(c wire.Config) string { return yesOrNo(c.Changes) },
		read:    func(text string, c *wire.Config) error { c.Changes = text == yes; return nil },
	},
	{
		Name: "paused", Label: "What expires", Title: "Paused",
		Options: []option{{no, "gets its event, and is removed"}, {yes, "is hidden, and waits (paused)"}},
		show:    func(c wire.Config) string { return yesOrNo(c.Paused) },
		human:   func(c wire.Config) string { return yesOrNo(c.Paused) },
		read:    func(text string, c *wire.Config) error { c.Paused = text == yes; return nil },
	},
	{
		Name: "indexes", Label: "Indexes", Title: "Indexes", Lines: 3,
		Help: "Pointers by whose values documents can be queried, such as /customer or /seat/row: one on each line, up to 8.",
		show: func(c wire.Config) string { return strings.Join(c.Indexes, "\n") },
		human: func(c wire.Config) string {
			if len(c.Indexes) == 0 {
				return "none"
			}
			return strings.Join(c.Indexes, ", ")
		},
		read: readIndexes,
	},
}

// field is a setting as a page shows it.
type field struct {
	setting
	Value string // as the form has it
	Text  string // for people
	Error string // what is wrong with the value
}

// fieldsOf are the fields that show a configuration.
func fieldsOf(c wire.Config) []field {
	fields := make([]field, len(settings))
	for i, s := range settings {
		fields[i] = field{setting: s, Value: s.show(c), Text: s.human(c)}
	}
	return fields
}

// readFields reads the fields of a form. A choice that the form lacks stays as it is now.
func readFields(form url.Values, now wire.Config) (fields []field, c wire.Config) {
	c = othersOf(now)
	fields = make([]field, len(settings))
	for i, s := range settings {
		f := field{setting: s, Value: strings.TrimSpace(form.Get(s.Name))}
		if s.Options != nil && !form.Has(s.Name) {
			f.Value = s.show(now)
		}
		if err := s.read(f.Value, &c); err != nil {
			f.Error = err.Error()
		}
		fields[i] = f
	}
	return fields, c
}

// othersOf is a configuration without its default TTL, its index and its etag.
func othersOf(c wire.Config) wire.Config {
	c = c.Published()
	c.DefaultTTL, c.IndexingMode = nil, ""
	return c
}

func yesOrNo(is bool) string {
	if is {
		return yes
	}
	return no
}

func limitField(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

func limitText(n int32) string {
	if n == 0 {
		return "no limit"
	}
	return ttlText(&n)
}

// readLimit reads a number of seconds; 0 of an empty text.
func readLimit(text string, to *int32) error {
	*to = 0
	if text == "" {
		return nil
	}
	n, ok := seconds(text)
	if !ok || n < 1 || n > ttlrules.MaxSeconds {
		return fmt.Errorf("%s is not valid: use a whole number of seconds from 1 to %d, a duration such as 90s, 2h or 7d, "+
			"or nothing", wire.Quote(text), ttlrules.MaxSeconds)
	}
	*to = int32(n)
	return nil
}

func readWarnings(text string, c *wire.Config) error {
	c.WarnBefore = nil
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		var n int32
		if err := readLimit(strings.TrimSpace(one), &n); err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%s is not valid: there is nothing between two commas or at an end; use durations such as "+
				"1h,5m", wire.Quote(text))
		}
		c.WarnBefore = append(c.WarnBefore, n)
	}
	return nil
}

func warningsText(c wire.Config) string {
	if len(c.WarnBefore) == 0 {
		return "none"
	}
	texts := make([]string, len(c.WarnBefore))
	for i, n := range c.WarnBefore {
		texts[i] = ttlText(&n)
	}
	return strings.Join(texts, ", ") + " before"
}

// readSlide leaves the part of the TTL to the next row.
func readSlide(text string, c *wire.Config) error {
	switch {
	case text != yes:
		c.SlideOnRead = 0
	case c.SlideOnRead == 0:
		c.SlideOnRead = wire.SlideTenth
	}
	return nil
}

// slidePart is empty where reads do not renew, or do so after a tenth of the TTL.
func slidePart(c wire.Config) string {
	if c.SlideOnRead == 0 || c.SlideOnRead == wire.SlideTenth {
		return ""
	}
	return c.SlideOnRead.String()
}

func readSlidePart(text string, c *wire.Config) error {
	part := wire.SlideTenth
	if text != "" {
		var err error
		if part, err = wire.ParseSlide([]byte(text)); err != nil || part == 0 {
			return fmt.Errorf("%s is not a valid part of the TTL: use a number over 0 and under 1 such as 0.01, or nothing "+
				"for a tenth", wire.Quote(text))
		}
	}
	if c.SlideOnRead != 0 {
		c.SlideOnRead = part
	}
	return nil
}

// readIndexes reads a pointer of each line.
func readIndexes(text string, c *wire.Config) error {
	c.Indexes = nil
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		pointer, err := entries.PointerOf(line)
		if err != nil {
			return err
		}
		c.Indexes = append(c.Indexes, pointer)
	}
	return nil
}

func hasEventBody(c wire.Config) bool { return c.EventBody == nil || *c.EventBody }

// readEventBody leaves a configuration alone that says the same already: it may say so by saying nothing.
func readEventBody(text string, c *wire.Config) error {
	if has := text != no; has != hasEventBody(*c) {
		c.EventBody = nil
		if !has {
			c.EventBody = &has
		}
	}
	return nil
}
