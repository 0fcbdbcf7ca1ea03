//! The files beside `nginx.conf` that nginx's packages install, for a configuration that was copied without them.

/// The content of a standard file, by the last part of its path: the directives that have an effect here.
pub(crate) fn content(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        // The parameters are those that every request to a program has here, and the types those that files have.
        "fastcgi_params" | "uwsgi_params" | "scgi_params" | "mime.types" | "koi-utf" | "koi-win" | "win-utf" => {
            Some("")
        }
        "fastcgi.conf" => Some("fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;"),
        "fastcgi-php.conf" => Some(
            "fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
             try_files $fastcgi_script_name =404;
             set $path_info $fastcgi_path_info;
             fastcgi_param PATH_INFO $path_info;
             fastcgi_index index.php;
             include fastcgi.conf;",
        ),
        "proxy_params" => Some(
            "proxy_set_header Host $host;
             proxy_set_header X-Real-IP $remote_addr;
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             proxy_set_header X-Forwarded-Proto $scheme;",
        ),
        _ => None,
    }
}
