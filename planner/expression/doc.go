// Package expression reads SQL that a policy's author wrote over a row's own columns: a condition (where) or an instant (the
// kind expression). It returns what PostgreSQL understood, in one spelling, or says in words why it is refused.
//
// # What it promises
//
//   - PostgreSQL parses the text, and the package checks the resulting tree, not the text: every function, operator, cast and type in it
//     by its oid.
//   - Reading evaluates nothing: no row is checked, no function is called or folded, and no code of the table's owner reads a
//     literal.
//   - The result means the same wherever it is parsed again under search_path = pg_catalog, pg_temp: its columns are
//     written t."name", its literals have types, and it was parsed a second time, over the columns as they are.
//   - It says which columns it reads, with numbers and types, and whether an index can hold it.
//
// # What it refuses
//
// More than one expression, comments, dollar quotes and names with Unicode escapes; subqueries, other tables, whole rows, system
// columns; volatile functions; what depends on the time or the user (now(), current_user, 'today'); stable functions other than those of
// steady, which depend only on pinned settings; functions, operators, types and collations that are neither
// PostgreSQL's nor a superuser's. A superuser's is what a role with SUPERUSER owns, such as the objects of an extension that a
// superuser made; of a superuser's functions only those that are declared immutable. A name without a schema is looked for in
// pg_catalog alone. A column of an extension's type is not cast without being asked, since the operators of the extension's schema
// would mean something else (citext): the cast is to be written.
//
// Columns that cannot be read at all: virtual generated ones, composite types, arrays of domains, and types of other roles. Any role's enums can
// be read, and so can domains, as the types under them.
//
// # Order
//
//	scan          text → tokens                 pure; what could hide a second statement or a name from us is refused
//	names         tokens → problems             what is named with a schema is a superuser's, before anything is parsed
//	parse         text → tree, canonical text   in a temporary table without rows, see below
//	judge         tree → problems               every object by its oid
//	parse, judge  canonical text, once more     over the columns' own types
//
// PostgreSQL reads a literal by the input function of its type while it parses. For an array of a domain that runs the domain's CHECK, which may
// call any role's function. So the temporary table has a domain's base type instead of the domain, leaves out columns that cannot be read, and
// its types are compared by oid with those that were checked. The parsing happens in a SECURITY DEFINER function that the table's owner owns
// during the transaction. If code of the owner runs nevertheless, because the owner renames things during an apply, it has only the owner's
// rights. What it could leave behind in the session has no effect: settings are pinned again after each statement in which it could run, and
// no statement of ours has a name; prepared statements are dropped at the end. If the owner is a superuser, the function runs as a role that
// can only read.
//
// # When something fails
//
//	what                                        what is left                   who goes on
//	we die at any point                         nothing: all is rolled back    the next apply
//	the server is read only                     nothing                        the next call, elsewhere
//	the owner may make no temporary tables      a problem with the GRANT       a DBA
//	an object is replaced after it was checked  only a superuser can do that   the next apply
//	a function that fits better is made later   the warning of open schemas    a DBA, who moves the extension to a schema of its own
//	an expression raises for a row              the batch, with its SQLSTATE   a person, who fixes the row or the policy
package expression
