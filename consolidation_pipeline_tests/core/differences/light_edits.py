"""Light edits: pairs of short notes that say the same, a row for each rule and each language it holds in."""

LIGHT_EDITS = [
    # the subject of a German clause behind its verb
    ("Wir haben gestern den Server neu gestartet.", "Gestern haben wir den Server neu gestartet."),
    ("Den Müll bringt Paul am Donnerstag raus.", "Paul bringt den Müll am Donnerstag raus."),
    ("Der Test schlägt fehl, wenn die Datei fehlt.", "Wenn die Datei fehlt, schlägt der Test fehl."),
    ("Die Lohnabrechnung verschickt Frau Keller.", "Frau Keller verschickt die Lohnabrechnung."),
    # the verb of a German clause at its end
    ("Der Import brach nach zehn Minuten ab.", "Der Import ist nach zehn Minuten abgebrochen."),
    # what is to be done
    ("Man muss die Konfiguration prüfen.", "Es ist nötig, die Konfiguration zu prüfen."),
    ("Hunde dürfen nicht mitgebracht werden.", "Es ist nicht erlaubt, Hunde mitzubringen."),
    ("Die Formulare sind bis Freitag abzugeben.", "Die Formulare müssen bis Freitag abgegeben werden."),
    ("Está prohibido fumar en la escalera.", "No está permitido fumar en la escalera."),
    ("Il est interdit de fumer dans l'escalier.", "Il n'est pas permis de fumer dans l'escalier."),
    ("It is not possible to open the door.", "The door cannot be opened."),
    # nouns for verbs
    ("Die Prüfung der Logs erfolgt täglich.", "Die Logs werden täglich geprüft."),
    # owners
    ("Die Wohnung von Anna liegt im dritten Stock.", "Annas Wohnung liegt im dritten Stock."),
    # subjects of Spanish and French verbs on either side
    ("Cada dos semanas se corta el césped.", "El césped se corta cada dos semanas."),
    ("La factura la paga Marta.", "Marta paga la factura."),
    ("Sur le balcon poussent des tomates.", "Des tomates poussent sur le balcon."),
    # amounts and times
    ("El descanso dura un cuarto de hora.", "El descanso dura 15 minutos."),
    ("Le rendez-vous est à 9 h 30.", "Le rendez-vous est à neuf heures et demie."),
    ("Die Garantie läuft zwei Jahre.", "Die Garantie läuft 24 Monate."),
    # a negation behind its verb
    ("Depuis la mise à jour, le service ne démarre plus.", "Le service ne démarre plus depuis la mise à jour."),
    # a pronoun and its noun
    (
        "Weil der Kunde kein WLAN hat, bekommt er die Updates per USB-Stick.",
        "Der Kunde bekommt die Updates per USB-Stick, weil er kein WLAN hat.",
    ),
    # short texts whose words are of two languages
    ("La latencia ha subido a 300 ms.", "La latencia subió a 300 ms."),
    # classifiers
    ("项目组有五名成员。", "项目组有5个成员。"),
    ("这本书已经过期。", "这书已经过期。"),
    ("会議室は12人まで入れる。", "会議室は12名まで入れる。"),
    ("箱に三つ入れる。", "箱に3個入れる。"),
    # how often
    ("锅炉每年检修一次。", "锅炉一年检修一次。"),
    ("助听器每两周换一次电池。", "助听器两周换一次电池。"),
    ("租金每月1号交。", "租金每个月1日交。"),
    ("ボイラーは年に一度点検する。", "ボイラーは年1回点検します。"),
    ("電池は2週間ごとに交換する。", "電池は2週間に1回交換する。"),
    ("データは5分ごとに同期する。", "データは5分毎に同期する。"),
    # units
    ("连接超时是120秒。", "连接超时是两分钟。"),
    ("任务运行半小时。", "任务运行30分钟。"),
    # objects and agents
    ("我把钥匙放在门口了。", "我将钥匙放在门口了。"),
    ("快递被邻居代收了。", "邻居代收了快递。"),
    ("预算由财务部审核。", "财务部审核预算。"),
    ("订单取消后三天内退款。", "取消订单后三天内退款。"),
    ("夜勤の看護師が薬品庫の鍵を管理している。", "薬品庫の鍵は夜勤の看護師によって管理されている。"),
    # times elsewhere in a clause
    ("周末游泳池人很多。", "游泳池周末人很多。"),
    ("他去年搬到北京。", "去年他搬到北京。"),
    ("庭の木は毎年秋に剪定する。", "毎年秋に庭の木を剪定します。"),
    # phrases with a particle
    ("ファイルを田中さんに送る。", "田中さんにファイルを送ってください。"),
    # a comma more
    ("磁盘满后服务会停止。", "磁盘满后，服务会停止。"),
    ("コストが低いのでA案を選んだ。", "コストが低いため、A案を選択しました。"),
    # what will be
    ("合同明年三月到期。", "合同将于明年3月到期。"),
    # steps
    ("先安装依赖，然后运行构建。", "先安装依赖，再运行构建。"),
    # a word that ends inside of another one
    ("周报在周五下班之前提交。", "周报在周五下班前提交。"),
    # where
    ("遥控器在沙发上。", "遥控器在沙发上面。"),
    ("部署脚本位于scripts目录下。", "部署脚本在scripts目录里。"),
    ("テストはコンテナ内で実行する。", "テストをコンテナの中で実行します。"),
    # who may
    ("只有管理员才能删除用户。", "只有管理员可以删除用户。"),
    # the same quantity on the other side
    ("因为台风，航班全部取消。", "由于台风，所有航班取消。"),
    # compounds in katakana
    ("デプロイスクリプトはここにある。", "デプロイのスクリプトはここにあります。"),
    # stems of verbs
    ("猫は一日に二回食べる。", "猫は1日2回食べます。"),
    ("設定ファイルは起動時に読み込まれる。", "起動時に設定ファイルを読み込む。"),
    # 行う, 実施する
    ("テストを行った。", "テストを実施した。"),
    # が of what is possible, liked or changed
    ("息子は卵を食べられない。", "息子は卵が食べられません。"),
    ("彼女の電話番号が変わった。", "彼女の電話番号を変えた。"),
    # what goes on, what is done
    ("彼は設定を変更中です。", "彼は設定を変更しているところです。"),
    ("古いAPIは既に削除した。", "古いAPIはすでに削除済みです。"),
    # what may be done
    ("ファイル名に空白は使えません。", "ファイル名には空白を使用できません。"),
    # "all" behind its noun
    ("すべてのパスワードは暗号化して保存する。", "パスワードはすべて暗号化して保存する。"),
    # who does it in a passive
    ("報告書は経理部が作成した。", "報告書は経理部によって作成された。"),
    # it fails, it fails at
    ("テストが失敗するとパイプラインが止まる。", "テストに失敗するとパイプラインが止まる。"),
    # an adverb elsewhere in a clause
    ("コピー機がよく紙詰まりを起こす。", "コピー機が紙詰まりをよく起こす。"),
    # how long, how often, each such day
    ("Logs werden sieben Tage aufbewahrt.", "Logs werden 7 Tage lang aufbewahrt."),
    ("Der Job wird dreimal wiederholt.", "Der Job wird 3 Mal wiederholt."),
    ("Les poubelles sont ramassées le jeudi.", "Les poubelles sont ramassées tous les jeudis."),
    ("La copia se hace cada noche.", "Cada noche la copia se hace."),
]
