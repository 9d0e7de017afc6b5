package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// queryForm is the form of a query on the page of a collection, and what came of it.
type queryForm struct {
	Where      string // as it was typed
	Order      string // as it was typed; "" for a list in no particular order
	Scan       bool
	WhereError string // what is wrong with the conditions, or why there is no answer to them
	OrderError string
	NoIndex    bool   // no index serves the query
	Asked      bool   // the page shows the results of a query
	Count      string // how far the page came
}

// The names of the fields of the form.
const (
	whereField = "where"
	orderField = "order"
	scanField  = "scan"
)

// readQuery reads the form from the address of a page. The order by deadline alone is one of a list.
func (v *visit) readQuery() (form queryForm) {
	query := v.r.URL.Query()
	form.Where, form.Order = strings.TrimSpace(query.Get(whereField)), strings.TrimSpace(query.Get(orderField))
	form.Scan = query.Get(scanField) == yes
	form.Asked = form.Where != "" || form.Order != "" && form.Order != string(wire.ByDeadline)
	return form
}

// parameters are those of a page with the same query.
func (f queryForm) parameters() []string {
	scan := ""
	if f.Scan {
		scan = yes
	}
	return []string{whereField, f.Where, orderField, f.Order, scanField, scan}
}

// wrong reports whether something that was typed is not valid.
func (f queryForm) wrong() bool { return f.WhereError != "" || f.OrderError != "" }

// request is the request of the form.
func (f *queryForm) request() (req wire.QueryRequest) {
	order, err := entries.OrderOf(f.Order)
	if err != nil {
		f.OrderError = err.Error()
	}
	where, err := entries.Merge(conditions(f.Where))
	if err != nil {
		f.WhereError = err.Error()
	}
	req = wire.QueryRequest{Limit: perPage, Order: wire.Order(order), Scan: f.Scan, Where: make(map[string]json.RawMessage)}
	for pointer, condition := range where {
		req.Where[pointer] = condition
	}
	return req
}

var (
	quotedText     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	conditionStart = regexp.MustCompile(`(?:^|[ \t])[^ \t=<>^]+[ \t]*(?:\^=|[<>]=?|=)`)
)

// conditions are the conditions of a text: each line has one, or several with spaces between them. A line goes on to
// another where a name and an operator follow a space outside quotes.
func conditions(text string) (all []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		plain := quotedText.ReplaceAllStringFunc(line, func(quoted string) string { return strings.Repeat("_", len(quoted)) })
		begin := 0
		for _, found := range conditionStart.FindAllStringIndex(plain, -1) {
			if found[0] > 0 {
				all = append(all, strings.TrimSpace(line[begin:found[0]]))
				begin = found[0]
			}
		}
		all = append(all, strings.TrimSpace(line[begin:]))
	}
	return all
}

// ask reads a page of the query. What is wrong with it is in the form, and no error.
func (v *visit) ask(f *queryForm, after string) (page wire.QueryReply, missing string, err error) {
	req := f.request()
	if f.wrong() {
		return page, "", nil
	}
	req.Continuation = after
	page, err = v.api.Query(v.collection, req)
	switch status := statusOf(err); {
	case err == nil:
		f.Count = examined(page.Examined)
		return page, "", nil
	case isNoCollection(err):
		return page, "", nil
	case status == http.StatusBadRequest:
		f.WhereError, f.NoIndex = err.Error(), isNoIndex(err)
		return page, "", nil
	case status == 0:
		return page, "", err
	}
	return page, err.Error(), nil
}

// examined says how much lapse has read for a page.
func examined(n int64) string {
	if n == 1 {
		return "1 was examined for this page"
	}
	return fmt.Sprintf("%d were examined for this page", n)
}

// isNoIndex reports whether no index of the collection serves a query.
func isNoIndex(err error) bool {
	var p *access.Problem
	return errors.As(err, &p) && p.Code == wire.ReasonNoIndex
}
