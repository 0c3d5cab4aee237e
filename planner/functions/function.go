package functions

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"text/template"

	"lapse/planner/expiry"
	"lapse/schemas"
)

//go:embed find.sql.tmpl delete.sql.tmpl drop.sql.tmpl survey.sql.tmpl look.sql.tmpl match.sql.tmpl
var functionTexts embed.FS

// BodyQuote encloses the functions' bodies.
const BodyQuote = "$lapse$"

var functionTemplates = template.Must(template.New("").Option("missingkey=error").
	Funcs(template.FuncMap{"inner": Inner}).ParseFS(functionTexts, "*.tmpl"))

// DeleteFunction names the deletion function of a policy version, with its schema.
func DeleteFunction(id schemas.PolicyID, version schemas.PolicyVersion) string {
	return fmt.Sprintf("lapse.delete_%d_%d", id, version)
}

// FindFunction names the function that finds a batch's rows for the deletion function of a policy version, with its schema.
func FindFunction(id schemas.PolicyID, version schemas.PolicyVersion) string {
	return fmt.Sprintf("lapse.find_%d_%d", id, version)
}

// SurveyFunction names the counting function of a policy version, with its schema.
func SurveyFunction(id schemas.PolicyID, version schemas.PolicyVersion) string {
	return fmt.Sprintf("lapse.survey_%d_%d", id, version)
}

// Of returns the functions of a policy version as the catalog must have them, sorted by name: the deletion function, the one that drops
// partitions if the policy does, the look, the one that finds a batch's rows, and the survey.
func Of(d *Definition, roles schemas.Roles) ([]schemas.Function, error) {
	text, err := d.Text()
	if err != nil {
		return nil, err
	}
	return schemas.ParseFunctions(text, roles.Deleter(d.TableOwner))
}

// SQL returns two scripts: one makes a policy version's functions and lets the executor call them, the other gives them to the deleter.
// Both run in the transaction that makes the version, so no other role can call the functions in between: the first as the catalog's
// owner, the second as a login that may act as both: a superuser, or with AsMember.
func SQL(d *Definition, roles schemas.Roles) (create, give string, err error) {
	text, err := d.Text()
	if err != nil {
		return "", "", err
	}
	deleter := schemas.Identifier(roles.Deleter(d.TableOwner))
	var made, given strings.Builder
	made.WriteString(text)
	find := FindFunction(d.ID, d.Version) + "(lapse.claim, lapse.work, lapse.place)"
	fmt.Fprintf(&made, "revoke all on function %s from public;\n", find) // only its owner calls it
	fmt.Fprintf(&given, "alter function %s owner to %s;\n", find, deleter)
	signatures := []string{
		DeleteFunction(d.ID, d.Version) + "(lapse.claim, bytea, lapse.work)",
		SurveyFunction(d.ID, d.Version) + SurveyArguments,
		DueFunction(d.ID, d.Version) + dueArguments,
	}
	if d.DropsPartitions() {
		signatures = append(signatures, DropFunction(d.ID, d.Version)+"(lapse.claim, bytea, lapse.work)")
	}
	for _, signature := range signatures {
		fmt.Fprintf(&made, "revoke all on function %s from public;\n", signature)
		fmt.Fprintf(&made, "grant execute on function %s to %s;\n", signature, schemas.Identifier(roles.Executor))
		fmt.Fprintf(&given, "alter function %s owner to %s;\n", signature, deleter)
	}
	return made.String(), given.String(), nil
}

// AsMember is SQL's second script for a login that is no superuser. A deleter has no right to create in the schema, but PostgreSQL then requires it of
// a function's new owner, so the script grants it for that moment. Each change of a schema's rights makes every session of the database plan
// its prepared statements again.
func AsMember(give string, d *Definition, roles schemas.Roles) string {
	deleter := schemas.Identifier(roles.Deleter(d.TableOwner))
	return "grant create on schema lapse to " + deleter + ";\n" + give + "revoke create on schema lapse from " + deleter + ";\n"
}

// Digest identifies the texts of the functions; "" if they cannot be written: see checkArithmetic.
func (d *Definition) Digest() string {
	unnumbered := *d
	unnumbered.ID, unnumbered.Version, unnumbered.Floors = 0, 0, nil
	text, err := unnumbered.Text()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Text is the text of the functions. It refuses an expiry below a floor.
func (d *Definition) Text() (string, error) {
	if err := d.checkFloors(); err != nil {
		return "", err
	}
	if err := d.checkNames(); err != nil {
		return "", err
	}
	remove, find, err := d.deletionFunctions()
	if err != nil {
		return "", err
	}
	survey, err := d.surveyFunction()
	if err != nil {
		return "", err
	}
	look, err := d.dueFunction()
	if err != nil || !d.DropsPartitions() {
		return remove + look + find + survey, err
	}
	drop, err := d.dropFunction()
	return remove + drop + look + find + survey, err
}

// checkNames refuses a name that would end a function's body, or a comment.
func (d *Definition) checkNames() error {
	names := []string{string(d.Name), d.Table, d.SearchPath}
	for _, c := range d.Slices {
		names = append(names, c.Name)
	}
	for _, field := range d.Expire.Fields() {
		names = append(names, field.Value)
	}
	for _, k := range d.Key {
		names = append(names, k.Name, k.Type)
	}
	if strings.Contains(d.Where.Text(), BodyQuote) {
		return fmt.Errorf("write the functions of policy %s: where contains %s, which ends a function's body", d.Name, BodyQuote)
	}
	for _, name := range names {
		if strings.Contains(name, BodyQuote) || strings.ContainsAny(name, "\r\n") {
			return fmt.Errorf("write the functions of policy %s: a name contains a line break or %s, which ends a function's body: rename it", d.Name, BodyQuote)
		}
	}
	return nil
}

// deletionFunctions returns the texts of the deletion function and of the one that finds its rows. It refuses to write a deletion whose one
// DELETE does not restate the expiry.
func (d *Definition) deletionFunctions() (remove, find string, err error) {
	condition := d.Condition()
	exact := condition.Exact("$1", "$2")
	using, on := condition.UsingRows()
	own, looks := "t.tableoid = $3", fmt.Sprintf("$4 * %d", LookAhead)
	if len(d.Slices) > 0 {
		own += " and " + d.Slice("$8", "$9")
		looks = fmt.Sprintf("$4 * greatest(%d, 2 * coalesce($8, 1))", LookAhead)
	}
	if d.certain() {
		looks = "$4"
	}
	searchPath := ""
	if d.SearchPath != "" {
		searchPath = schemas.Literal(d.SearchPath)
	}
	above, upTo := d.Within(unknown("$8"), unknown("$9"))
	narrow, floor := d.narrowAbove("$1", "$2")
	facts := d.RangeFacts()
	at, self := "t.ctid", own
	if joins := d.Expire.Joins(); len(joins) > 0 {
		cursor, parameters := d.cursor()
		facts["Cursor"], facts["After"], facts["FindValues"] = cursor, d.PickAfter(parameters), d.using(cursor...)
		facts["Joining"], facts["Alias"], facts["Alone"] = d.joining(), joins[0].Alias, d.Where == nil && len(d.Slices) == 0
		facts["Refers"] = joins[0].Refers
		facts["Locked"], facts["On"] = condition.UsingLocked("$7")
		at, self = atMark, ownMark
	} else {
		facts["FindValues"] = d.using()
	}
	maps.Copy(facts, map[string]any{
		"Name": DeleteFunction(d.ID, d.Version), "Find": FindFunction(d.ID, d.Version), "ID": d.ID, "Version": d.Version, "Policy": schemas.Literal(string(d.Name)),
		"Table": d.Table, "SearchPath": searchPath, "Sliced": len(d.Slices) > 0, "Ranged": d.Ranged(), "Batch": d.Batch, "Joined": d.joinedNames(), "Certain": d.certain(), "Proof": schemas.CallerProof,
		"Verb": d.verb(), "Set": d.set(), "Bound": BoundOf(d.Expire, "claim.cutoff"), "Using": using, "Own": own, "Exact": on + exact, "Shapes": d.shapesList(), "Usual": d.Shapes()[0], "Values": d.using(), "Looks": looks,
		"PickSelect": strings.NewReplacer(atMark, "' || rows_at || '", ownMark, "' || own || '").Replace(onLeaf(d.pickSelect(at, leafMark, narrow, "$1", "$2", self), "place.leaf")),
		"HeapSelect": onLeaf(d.HeapSelect(leafMark, "$1", "$2", own), "place.leaf"),
		"PickTail":   d.PickTail(looks), "Lock": condition.Lock(), "Above": above, "UpTo": upTo,
		"LastFound": d.lastFound("d"), "Edge": d.places("e", "::text"), "EdgeTail": d.PickTail("1 offset " + looks + " - 1"), "EdgeSelect": onLeaf(d.EdgeSelect(leafMark, "$1", "$2"), "place.leaf"), "KeyTexts": d.KeyTexts(), "Low": d.LowWater("place.low"), "Floor": floor,
	})
	facts["EdgeKept"] = ""
	if d.certain() && d.LowWater("") != nil {
		facts["EdgeKept"] = d.EdgeSelect(d.Table, "claim.cutoff", "bound") + "\n   and " + d.Order()[0].SQL + " > " + unknown("after_1")
	}
	if remove, err = fill("delete.sql.tmpl", facts); err != nil {
		return "", "", err
	}
	if !restates(remove, d.verb(), exact) {
		return "", "", fmt.Errorf("policy %s: the deletion does not restate when a row is due", d.Name)
	}
	find, err = fill("find.sql.tmpl", facts)
	return remove, find, err
}

// KeyTexts is SQL for a row's key as the quarantine stores it: an array of texts.
func (d *Definition) KeyTexts() string {
	texts := make([]string, len(d.Key))
	for i := range d.Key {
		texts[i] = "(t." + schemas.Identifier(d.Key[i].Name) + ")::text"
	}
	return "array[" + strings.Join(texts, ", ") + "]"
}

// joinedNames are the relations that the condition reads in addition to the table.
func (d *Definition) joinedNames() (names []string) {
	for _, j := range d.Expire.Joins() {
		names = append(names, j.Relation)
	}
	return names
}

// restates reports whether the one DELETE in a function's text, or the UPDATE instead of it, is followed by the condition, which is in a
// variable.
func restates(text, verb, condition string) bool {
	due, rest, _ := strings.Cut(text, "\n    deletion := '"+verb+" only")
	statement, after, ended := strings.Cut(rest, ";\n")
	for _, other := range []string{"'delete", "'update"} {
		if strings.Contains(due, other) || strings.Contains(after, other) {
			return false
		}
	}
	return ended && strings.Contains(due, "\n  due     text := '") && strings.Contains(due, Inner(condition)+"';\n") && strings.HasSuffix(statement, "' || due || ' and '")
}

// onLeaf writes SQL for a place inside a quoted statement text, with the leaf's name from a variable.
func onLeaf(sql, variable string) string {
	return strings.ReplaceAll(Inner(sql), leafMark, "' || "+variable+" || '")
}

// SurveyArguments are the types of a survey function's parameters.
const SurveyArguments = "(timestamptz, bigint, bigint)"

func (d *Definition) surveyFunction() (string, error) {
	return d.surveyText("lapse", SurveyFunction(d.ID, d.Version), fmt.Sprintf("lapse.inspect(%d, %d)", d.ID, d.Version),
		fmt.Sprintf("lapse.held_rows(%d, %d, %s)", d.ID, d.Version, schemas.CallerProof), d.findStatement(leafMark, "$1", "$2", "$3", "$4"))
}

// surveyText is the text of a survey function. schema has the functions that it calls; inspect is SQL that raises unless the table may be read, and is its oid; held is
// SQL whose value is a condition that is true of held rows, "" where holds are not asked for; pick is the statement that is explained.
func (d *Definition) surveyText(schema, name, inspect, held, pick string) (string, error) {
	c := d.Condition()
	narrow := c.Narrow("$1", "$2")
	condition := strings.TrimPrefix(narrow+"\n   and "+c.Exact("$1", "$2"), "\n   and ")
	likely := condition
	if d.certain() {
		likely = narrow // the exact condition is the same rows, and PostgreSQL expects half of them
	}
	local := expiry.LocalOf(d.Expire)
	facts := map[string]any{
		"Schema": schema, "Name": name, "Soft": d.Soft != nil, "Inspect": inspect, "Held": held, "Policy": d.Name, "Table": d.Table, "Followed": Followed,
		"Local":  local != nil && local.Type == expiry.Timestamp && local.Zone == "",
		"Joined": d.joinedNames(), "Bound": BoundOf(d.Expire, "at_cutoff"), "From": c.From(d.Table), "Instant": d.Expire.Instant(), "Batch": d.Batch,
		"Ranged": d.Ranged(), "Backlog": Backlog(d.Batch), "Column": schemas.Literal(d.Expire.Order().Column), "Cast": d.Expire.Order().Cast,
		"First": d.Expire.Order().SQL, "Condition": condition, "Likely": likely, "Pick": onLeaf(pick, "place"), "Looks": LookAhead * d.Batch, "Unread": nil,
	}
	if unread := expiry.UnreadOf(d.Expire); unread.Condition != "" {
		facts["Unread"], facts["ValueColumn"] = unread, schemas.Identifier(d.Expire.Columns()[0].Name)
	}
	return fill("survey.sql.tmpl", facts)
}

// BoundOf is the bound as the functions declare it: null for a kind without one, and then no statement reads it.
func BoundOf(kind expiry.Kind, cutoff string) expiry.Bound {
	b := kind.Bound(cutoff)
	if b.IsZero() {
		return expiry.Bound{Type: "text", Value: "null"}
	}
	return b
}

func fill(name string, facts map[string]any) (string, error) {
	var sql strings.Builder
	if err := functionTemplates.ExecuteTemplate(&sql, name, facts); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return sql.String(), nil
}

// These stand for the leaf, for the address of a row, and for the condition that a row is the leaf's own, while the pick is written. No name
// contains them.
const (
	leafMark = "\x00leaf"
	atMark   = "\x00at"
	ownMark  = "\x00own"
)

// Inner writes SQL for a place inside a quoted statement text.
func Inner(sql string) string { return strings.ReplaceAll(sql, "'", "''") }

// Followed is how many due rows a count follows through foreign keys, if there are more due rows than it counts.
const Followed = 10000
